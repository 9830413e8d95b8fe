#include "format/file/columns/stats_columns.h"

#include <algorithm>

#include "format/schema/chunk_generated.h"

namespace convtrace::format {
namespace {

void append(std::vector<uint8_t>& to, std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  to.insert(to.end(), first, first + bytes.size());
}

}  // namespace

void StatsColumns::put(const TensorStats& e) {
  std::array<uint64_t, 10 + kStatsWords> varying = {e.value.storage, e.value.offset,
                                                    e.value.generation, e.value.version, e.address};
  varying[5 + kStatsWords] = e.looks;
  varying[6 + kStatsWords] = e.changes;
  varying[7 + kStatsWords] = e.pad_count;
  varying[8 + kStatsWords] = e.poisoned;
  if (e.capture != Capture::kHash) {
    std::ranges::copy(words_of(e.stats), varying.begin() + 5);
    put_sketch(e.stats.sketch);
    varying[9 + kStatsWords] = sketch_word(e.stats.sketch);
  }
  const auto number = [](auto value) { return static_cast<uint64_t>(value); };
  const auto shape = e.has_shape ? e.shape : std::span<const uint64_t>();
  const size_t back = rows_.put({e.place.scope.value,
                                 e.place.call,
                                 number(e.place.phase),
                                 e.slot.value,
                                 e.op.value,
                                 e.kernel.value,
                                 number(e.device.type),
                                 e.device.index,
                                 number(e.dtype),
                                 number(e.extent),
                                 number(e.capture),
                                 e.bytes,
                                 e.stats.count,
                                 e.variant,
                                 e.has_shape ? e.shape.size() : wire::kRankUnknown,
                                 e.range_hashes.size(),
                                 e.samples.size(),
                                 e.leading.size(),
                                 number(e.padding),
                                 number(e.pad_index),
                                 e.pad_rows.size()},
                                varying, shape);
  if (back == 0) {
    for (const uint64_t extent : shape) shape_.put(dims_++, extent);
  }
  hash_.push_back(e.stats.hash);
  range_hashes_.insert(range_hashes_.end(), e.range_hashes.begin(), e.range_hashes.end());
  append(samples_, e.samples);
  append(leading_, e.leading);
  pad_rows_.insert(pad_rows_.end(), e.pad_rows.begin(), e.pad_rows.end());
}

void StatsColumns::put_sketch(const Sketch& sketch) {
  if (!sketch.is_known()) return;
  for (const float bucket : sketch.bucket) sketch_.put(buckets_++, bucket_word(bucket));
}

size_t StatsColumns::packed_bytes() const {
  return rows_.packed_bytes() + shape_.packed_bytes(dims_) + sketch_.packed_bytes(buckets_) +
         (hash_.size() + range_hashes_.size() + pad_rows_.size()) * sizeof(uint64_t) +
         samples_.size() + leading_.size();
}

std::unique_ptr<wire::StatsColumnsT> StatsColumns::pack() const {
  using To = wire::StatsColumnsT;
  if (rows_.row_count() == 0) return nullptr;
  auto to = std::make_unique<To>();
  rows_.pack(
      *to, {&To::scope,        &To::call,         &To::phase,         &To::slot,    &To::op,
            &To::kernel,       &To::device_type,  &To::device_index,  &To::dtype,   &To::extent,
            &To::capture,      &To::bytes,        &To::count,         &To::variant, &To::rank,
            &To::range_count,  &To::sample_bytes, &To::leading_bytes, &To::padding, &To::pad_index,
            &To::pad_row_count},
      {&To::storage,
       &To::storage_offset,
       &To::generation,
       &To::version,
       &To::address,
       &To::finite,
       &To::nan,
       &To::pos_inf,
       &To::neg_inf,
       &To::pos_zero,
       &To::neg_zero,
       &To::positive,
       &To::negative,
       &To::subnormal,
       &To::saturated,
       &To::min,
       &To::max,
       &To::amax,
       &To::amin_nonzero,
       &To::sum_lo,
       &To::sum_hi,
       &To::l1_lo,
       &To::l1_hi,
       &To::l2,
       &To::mean,
       &To::deviation,
       &To::looks,
       &To::changes,
       &To::pad_count,
       &To::poisoned,
       &To::sketch_exponent});
  to->shape = shape_.pack(dims_);
  to->sketch = sketch_.pack(buckets_);
  to->hash = hash_;
  to->range_hashes = range_hashes_;
  to->samples = samples_;
  to->leading = leading_;
  to->pad_rows = pad_rows_;
  return to;
}

void StatsColumns::clear() {
  rows_.clear();
  shape_.clear();
  sketch_.clear();
  dims_ = buckets_ = 0;
  hash_.clear();
  range_hashes_.clear();
  samples_.clear();
  leading_.clear();
  pad_rows_.clear();
}

}  // namespace convtrace::format
