#include "format/findings/collectives/flat_buckets.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace convtrace::judge {
namespace {

/// Copies that are divided have roundings of the type; their sums differ by far less.
constexpr double kEqual = 1e-5;
constexpr double kUnlike = 1e-3;
constexpr uint64_t kLeastElements = 8;
constexpr size_t kMostCompared = 1 << 18;  // runs of gradients in an update

bool is_measured(const format::TensorStats& event) {
  const bool wide = event.dtype == format::DType::kF32 || event.dtype == format::DType::kF64;
  return wide && event.capture != format::Capture::kHash && event.stats.count != 0 &&
         event.stats.finite == event.stats.count;
}

}  // namespace

void FlatBuckets::see(const format::Collective& event) {
  if (event.group_size > 1 && event.device.type == format::Device::Type::kCpu &&
      definitions_.text(event.op) == "all_reduce" && definitions_.text(event.reduction) == "sum")
    ranks_.get(event.id).first = event.group_size;
}

void FlatBuckets::see(const format::TensorStats& event) {
  const std::string_view slot = definitions_.text(event.slot);
  if (slot == "sent:0") {
    sent_ = event;
    sent_->shape = {};
    sent_->range_hashes = {};
    sent_->samples = sent_->leading = {};
    sent_->pad_rows = {};
    return;
  }
  if (slot != "received:0") return;
  for (Bucket& bucket : buckets_) {
    if (bucket.collective != event.collective) continue;
    bucket.received = sums_of(event);
    bucket.complete = is_measured(event) && !is_multiple(bucket);
  }
}

void FlatBuckets::begins(const format::Op& call) {
  if (!sent_ || sent_->address != call.address || sent_->bytes != call.bytes ||
      !is_measured(*sent_) || sent_->stats.count < kLeastElements || buckets_.size() == kMost)
    return;
  const uint64_t* const ranks = ranks_.find(sent_->collective);
  if (ranks == nullptr) return;
  buckets_.push_back({.call = call,
                      .dtype = sent_->dtype,
                      .collective = sent_->collective,
                      .ranks = *ranks,
                      .sent = sums_of(*sent_),
                      .received = {}});
}

void FlatBuckets::take(const format::TensorStats& gradient, bool unclipped) {
  if (buckets_.empty() || gradients_.size() + unclipped_.size() == kMostGradients) return;
  (unclipped ? unclipped_ : gradients_)
      .push_back({gradient.header, gradient.place, gradient.slot,
                  is_measured(gradient) ? gradient.dtype : format::DType::kUnknown,
                  sums_of(gradient)});
}

std::optional<FlatBuckets::Found> FlatBuckets::updated() {
  std::optional<Found> found;
  if (!gradients_.empty()) {
    const std::vector<Gradient>& taken = unclipped_.empty() ? gradients_ : unclipped_;
    size_t compared = 0;
    for (const Bucket& bucket : buckets_) {
      if (found || !bucket.complete) continue;
      found = find(bucket, taken, compared);
    }
  }
  buckets_.clear();
  gradients_.clear();
  unclipped_.clear();
  if (found && !seen_in_) seen_in_ = found->header.step;
  return found && *seen_in_ != found->header.step ? found : std::nullopt;
}

void FlatBuckets::forget() {
  sent_.reset();
  buckets_.clear();
  gradients_.clear();
  unclipped_.clear();
}

FlatBuckets::Sums FlatBuckets::sums_of(const format::TensorStats& event) {
  const format::Stats& stats = event.stats;
  return {stats.count, stats.sum.as_f64(), stats.l1.as_f64(), stats.l2 * stats.l2,
          stats.amax.as_f64()};
}

/// @return whether `a` is `b` times a factor.
bool FlatBuckets::are_alike(const Sums& a, const Sums& b, double factor, double tolerance) {
  const auto is_near = [tolerance](double x, double y, double size) {
    return std::abs(x - y) <= tolerance * size;
  };
  const double l1 = factor * b.l1, squares = factor * factor * b.squares, amax = factor * b.amax;
  return a.count == b.count && is_near(a.sum, factor * b.sum, l1) && is_near(a.l1, l1, l1) &&
         is_near(a.squares, squares, squares) && is_near(a.amax, amax, amax);
}

/// @return whether all ranks have sent the same, or a multiple of it, or nothing but zeros.
bool FlatBuckets::is_multiple(const Bucket& bucket) {
  if (!(bucket.sent.l1 > 0)) return true;
  return are_alike(bucket.received, bucket.sent, bucket.received.l1 / bucket.sent.l1, kUnlike);
}

std::optional<FlatBuckets::Found> FlatBuckets::find(const Bucket& bucket,
                                                    const std::vector<Gradient>& gradients,
                                                    size_t& compared) {
  const double part = 1 / static_cast<double>(bucket.ranks);
  for (size_t begin = 0; begin < gradients.size(); ++begin) {
    Sums sums;
    for (size_t i = begin; i < gradients.size() && sums.count < bucket.sent.count; ++i) {
      if (++compared > kMostCompared) return std::nullopt;
      const Gradient& one = gradients[i];
      if (one.dtype != bucket.dtype) break;
      sums.count += one.sums.count;
      sums.sum += one.sums.sum;
      sums.l1 += one.sums.l1;
      sums.squares += one.sums.squares;
      sums.amax = std::max(sums.amax, one.sums.amax);
      if (are_alike(sums, bucket.sent, part, kEqual) &&
          !are_alike(sums, bucket.received, part, kUnlike)) {
        const Gradient& first = gradients[begin];
        return Found{.call = bucket.call,
                     .header = first.header,
                     .place = first.place,
                     .slot = first.slot,
                     .gradients = i + 1 - begin,
                     .ranks = bucket.ranks};
      }
    }
  }
  return std::nullopt;
}

}  // namespace convtrace::judge
