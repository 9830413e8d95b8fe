#include "tools/diff/drift.h"

#include <algorithm>
#include <cmath>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

/// By how much a module can enlarge what it is given, and its vectors a value, both beside
/// kSuspiciousLimit; and how many times as much as it did before.
constexpr double kGain = 2, kVectorGain = 0.5, kMoreThanBefore = 8;

/// From where on a single element of a gradient jumps, in units of its elements' root mean square;
/// and what part of its samples may.
constexpr double kJump = 0.01, kMostJump = 0.25;

/// Of a value of which only the hash is known, and differs.
constexpr double kUnknown = -1;

bool is_measured(const Comparison& c) {
  return c.bits_differ && static_cast<size_t>(c.field) < kMeasuredFields && std::isfinite(c.z);
}

/// Something of the same step can be made of it.
bool flows(const ValueRecord& record) {
  return record.kind != SlotKind::kGrad && record.kind != SlotKind::kParam &&
         record.kind != SlotKind::kOther;
}

/// Any call of a module, or of an op inside it.
RecordKey place_of(const ValueRecord& record) {
  RecordKey key = record.key;
  key.call = 0;
  key.occurrence = 0;
  return key;
}

double rms(const ValueRecord& record) {
  const auto finite = static_cast<double>(std::max<uint64_t>(record.stats.finite, 1));
  return record.stats.l2 / std::sqrt(finite);
}

/// What a difference of `size` in each element comes to in a field.
double in_field(double size, Field field, uint64_t count) {
  const auto n = static_cast<double>(std::max<uint64_t>(count, 1));
  return field == Field::kL1 ? size * n : field == Field::kL2 ? size * std::sqrt(n) : size;
}

template <typename Sizes>
double sum_of(const Sizes& sizes) {
  double sum = 0;
  for (const auto& [key, size] : sizes) sum += size;
  return sum;
}

/// The root mean square of the elements' differences, by what is known of them: a sum of
/// differences with random signs is as large as that times the root of their number.
double apart(const ValueView& base, const ValueView& cand) {
  const Measured measured = measure(base, cand);
  const auto difference = [&](Field field) {
    return measured.difference[static_cast<size_t>(field)];
  };
  const auto count = static_cast<double>(std::max<uint64_t>(base.record.stats.count, 1));
  const double most = std::max({difference(Field::kMean) * std::sqrt(count), difference(Field::kL2),
                                difference(Field::kSamples)});
  return std::isfinite(most) ? most : 0;
}

/// Whether few samples only are apart by more than `size`.
bool few_apart(const ValueView& base, const ValueView& cand, double size) {
  const std::vector<double> a = tools::decode_elements(base.record.dtype, base.samples);
  const std::vector<double> b = tools::decode_elements(cand.record.dtype, cand.samples);
  const size_t count = std::min(a.size(), b.size());
  size_t apart = 0;
  for (size_t i = 0; i < count; ++i) apart += std::abs(a[i] - b[i]) > size ? 1 : 0;
  return static_cast<double>(apart) <= kMostJump * static_cast<double>(count);
}

}  // namespace

void Drift::begin_step(const StepRecords& base, const Alignment& alignment,
                       const Lineage& lineage) {
  base_ = &base;
  alignment_ = &alignment;
  lineage_ = &lineage;
  z_.clear();
  largest_ = 0;
  followed_ = 0;
  calls_.clear();
  at_hand_.clear();
  others_at_hand_ = 0;
}

void Drift::judge(const ValueView& base, const ValueView& cand, Comparison& comparison) {
  const bool measured = is_measured(comparison) && epsilon(base.record.dtype) > 0;
  const double z = measured ? comparison.z : comparison.bits_differ ? kUnknown : 0;
  if (measured && comparison.verdict == Class::kDiverged) {
    const double times = explained(base, cand, comparison);
    if (times > 1) {
      comparison.tolerance *= times;
      comparison.z /= times;
      comparison.carried = comparison.z <= kSuspiciousLimit;
      if (comparison.carried) comparison.verdict = Class::kSuspicious;
    }
  }
  // What follows a true divergence is not rounding, and what single elements of a gradient did is
  // no measure for others.
  const bool rare = comparison.carried && base.record.kind != SlotKind::kOutput &&
                    z > kSuspiciousLimit * kGain * largest_;
  const bool counts = comparison.verdict != Class::kDiverged && flows(base.record) && !rare;
  if (counts && largest_ > 1) learn(base.record, z);
  z_.push_back(counts ? z : 0);
  largest_ = std::max(largest_, z_.back());
}

double Drift::explained(const ValueView& base, const ValueView& cand,
                        const Comparison& comparison) {
  const ValueRecord& record = base.record;
  if (record.kind == SlotKind::kParam) return 1;  // by its gradient alone: see rounding.h
  if (record.kind != SlotKind::kOutput && record.kind != SlotKind::kLoss) {
    return std::max(kGain * largest_, of_rare_elements(base, cand, comparison));
  }
  follow(static_cast<uint32_t>(z_.size()));
  const double inputs = of_inputs(record), parameters = of_parameters(base, cand, comparison);
  const auto before = seen_.find(place_of(record));
  if (before == seen_.end()) return std::max(kGain * inputs, parameters);
  const double gain = std::min(kGain, kMoreThanBefore * before->second.gain);
  return std::max({gain * inputs, before->second.largest, parameters});
}

void Drift::learn(const ValueRecord& record, double z) {
  if (record.kind != SlotKind::kOutput && record.kind != SlotKind::kLoss) return;
  follow(static_cast<uint32_t>(z_.size()));
  const double inputs = of_inputs(record);
  if (inputs < 1) return;
  Seen& seen = seen_[place_of(record)];
  seen.gain = std::max(seen.gain, std::max(z, 1.0) / inputs);
  seen.largest = std::max(seen.largest, z);
}

/// How far single elements can be apart where the averages agree as well as what came before; 0
/// where they do not.
double Drift::of_rare_elements(const ValueView& base, const ValueView& cand,
                               const Comparison& comparison) const {
  const auto field = static_cast<size_t>(comparison.field);
  const Measured measured = measure(base, cand);
  if (largest_ == 0 || measured.scale[field] == 0) return 0;
  const double relative = comparison.tolerance / measured.scale[field];
  for (const Field averaged : {Field::kStd, Field::kL1, Field::kL2}) {
    const auto i = static_cast<size_t>(averaged);
    const double allowed = kSuspiciousLimit * std::max(1.0, kGain * largest_) * relative;
    if (!(measured.difference[i] <= allowed * measured.scale[i])) return 0;
  }
  const double size = measured.scale[static_cast<size_t>(Field::kSamples)];
  const double grown = kSuspiciousLimit * kGain * largest_ * comparison.tolerance;
  if (!few_apart(base, cand, std::max(kJump * size, grown))) return 0;
  const auto largest = [](const ValueView& value) {
    return tools::magnitude_as_double(value.record.dtype, value.record.stats.amax);
  };
  // From nothing to anything that is there.
  return std::min(largest(base), largest(cand)) / comparison.tolerance / kSuspiciousLimit;
}

double Drift::of_inputs(const ValueRecord& record) const {
  const RecordKey key = call_key(record);
  const auto own = std::ranges::find(calls_.rbegin(), calls_.rend(), key, &Call::key);
  const bool others = own == calls_.rend() || own->others;
  double most = others ? others_at_hand_ : own->known;
  // Of its own children, too: a module gives out what they made.
  for (const uint32_t match : at_hand_) {
    if (others || is_inside(record_of(match).key.scope, key.scope))
      most = std::max(most, z_[match]);
  }
  if (!others) return most;
  for (const Call& call : calls_) {
    if (call.key == key || is_inside(key.scope, call.key.scope)) most = std::max(most, call.known);
  }
  return most;
}

double Drift::of_parameters(const ValueView& base, const ValueView& cand,
                            const Comparison& comparison) const {
  const auto own = parameters_.find(base.record.key.scope.value);
  if (own == parameters_.end()) return 0;
  const double size = kVectorGain * sum_of(own->second.vectors) +
                      sum_of(own->second.matrices) * std::max(rms(base.record), rms(cand.record));
  return in_field(size, comparison.field, base.record.stats.count) / comparison.tolerance;
}

void Drift::follow(uint32_t end) {
  for (; followed_ < end; ++followed_) {
    const ValueRecord& record = record_of(followed_);
    if (record.kind == SlotKind::kInput) follow_input(followed_, record);
    if (record.kind == SlotKind::kOutput) follow_output(followed_, record);
  }
}

void Drift::follow_input(uint32_t match, const ValueRecord& record) {
  const RecordKey key = call_key(record);
  while (!calls_.empty() && calls_.back().is_over && calls_.back().key != key) calls_.pop_back();
  if (calls_.empty() || calls_.back().key != key) calls_.push_back({.key = key});
  Call& call = calls_.back();
  const uint32_t producer = lineage_->seen_from[match];
  call.known = std::max(call.known, z_[producer == kNone ? match : producer]);
  call.others |= producer == kNone && z_[match] == kUnknown;
  if (producer != kNone) std::erase(at_hand_, producer);
}

/// What was put out inside of a module that has ended is in its outputs.
void Drift::follow_output(uint32_t match, const ValueRecord& record) {
  const RecordKey key = call_key(record);
  const auto call = std::ranges::find(calls_.rbegin(), calls_.rend(), key, &Call::key);
  if (call != calls_.rend()) {
    call->is_over = true;
    calls_.erase(call.base(), calls_.end());
  }
  const bool of_module = !record.key.op && !record.key.family;
  if (of_module) {
    std::erase_if(at_hand_, [&](uint32_t inner) {
      return is_inside(record_of(inner).key.scope, record.key.scope);
    });
  }
  put_by(match);
}

void Drift::put_by(uint32_t match) {
  constexpr size_t kMostAtHand = 64;
  if (at_hand_.size() == kMostAtHand) {
    others_at_hand_ = std::max(others_at_hand_, z_[at_hand_.front()]);
    at_hand_.erase(at_hand_.begin());
  }
  at_hand_.push_back(match);
}

bool Drift::is_inside(format::StringId scope, format::StringId outer) const {
  return scope != outer && diff::is_inside(names_.text(scope), names_.text(outer));
}

void Drift::take_parameter(const ValueView& base, const ValueView& cand,
                           const Comparison& comparison) {
  const ValueRecord& record = base.record;
  const bool equal = comparison.verdict == Class::kIdentical;
  if (equal && parameters_.empty()) return;
  if (!equal && (!is_measured(comparison) || comparison.verdict == Class::kDiverged)) return;
  Parameters& carried = parameters_[record.key.scope.value];
  const double size = equal ? 0 : apart(base, cand);
  if (record.dims_count <= 1) {
    carried.vectors[parameter_key(record)] = size;
  } else {
    const double own = std::max(rms(record), rms(cand.record));
    double& most = carried.matrices[parameter_key(record)];
    // One look at many elements of which few are apart may miss them.
    most = own > 0 ? std::max(most, size / own) : most;
  }
}

}  // namespace convtrace::diff
