#include "cupti/stats/batch.h"

#include <cstring>

#include "cupti/stats/finalize.h"

namespace convtrace::stats {

static_assert(kMaxBatchDims >= kMaxLayoutDims);

BatchBuilder::BatchBuilder(uint64_t partials, uint64_t tickets, Variant variant) noexcept
    : batch_{} {
  batch_.variant = static_cast<uint32_t>(variant);
  batch_.partials = partials;
  batch_.tickets = tickets;
}

bool BatchBuilder::add(const Layout& layout, format::Capture capture, uint64_t slot,
                       uint64_t sequence, uint32_t leading) noexcept {
  const uint32_t tiles = make_tiling(layout.bytes()).tiles;
  if (batch_.tensor_count == kMaxBatchTensors || dims_ + layout.rank > kMaxBatchDims ||
      tiles_ + tiles > kMaxBatchTiles) {
    return false;
  }
  DeviceTensor& tensor = batch_.tensors[batch_.tensor_count++];
  tensor.data = reinterpret_cast<uintptr_t>(layout.data);
  tensor.count = layout.count;
  tensor.slot = slot;
  tensor.sequence = sequence;
  tensor.first_tile = tiles_;
  tensor.first_dim = static_cast<uint16_t>(dims_);
  tensor.rank = static_cast<uint8_t>(layout.rank);
  tensor.dtype = static_cast<uint8_t>(layout.dtype);
  tensor.hash_only = capture == format::Capture::kHash ? 1 : 0;
  tensor.leading = leading;
  for (uint32_t i = 0; i < layout.rank; ++i) {
    batch_.dims[dims_++] = {layout.shape[i], layout.strides[i]};
  }
  tiles_ += tiles;
  return true;
}

StatsResult read_slot(const ResultSlot& slot, uint64_t count, format::DType dtype,
                      format::Capture capture, Variant variant) noexcept {
  StatsResult result;
  const uint32_t size = format::element_bytes(walked_dtype(dtype));
  const Tiling tiling = make_tiling(count * size);
  std::memcpy(result.range_hashes, slot.range_hashes, hashed_ranges(tiling) * sizeof(uint64_t));
  complete(slot.total, dtype, count, capture, tiling, variant, result);
  if (capture == format::Capture::kHash) return result;
  const uint32_t taken = sample_count(count);
  for (uint32_t i = 0; i < taken; ++i) {
    std::memcpy(result.samples + i * size, &slot.samples[i], size);
  }
  result.sample_bytes = taken * size;
  return result;
}

}  // namespace convtrace::stats
