#include "cupti/stats/batch.h"

#include <algorithm>
#include <cstring>

#include "cupti/stats/finalize.h"

namespace convtrace::stats {

static_assert(kMaxBatchDims >= kMaxLayoutDims && kMaxCopyDims == kMaxLayoutDims);

namespace {

DeviceTensor device_tensor(const Layout& layout) {
  DeviceTensor tensor{};
  tensor.data = reinterpret_cast<uintptr_t>(layout.data);
  tensor.count = layout.count;
  tensor.rank = static_cast<uint8_t>(layout.rank);
  tensor.dtype = static_cast<uint8_t>(layout.dtype);
  return tensor;
}

void copy_dims(const Layout& layout, DeviceDim* dims) {
  for (uint32_t i = 0; i < layout.rank; ++i) dims[i] = {layout.shape[i], layout.strides[i]};
}

}  // namespace

void BatchBuilder::clear() noexcept {
  head_.tensor_count = tiles_ = dims_ = 0;
  head_.log = log_.address + log_.taken * sizeof(LogPlace);
}

bool BatchBuilder::add(const Layout& layout, format::Capture capture, uint32_t slot,
                       uint64_t sequence, uint32_t leading) noexcept {
  const uint32_t tiles = make_tiling(layout.bytes()).tiles;
  if (head_.tensor_count == most_ || dims_ + layout.rank > kMaxBatchDims ||
      log_.count == Log::kMaxJobs || log_places(tiles) > log_.places - log_.taken) {
    return false;
  }
  DeviceTensor& tensor = tensors_[head_.tensor_count++];
  tensor = device_tensor(layout);
  tensor.slot = slot;
  tensor.first_tile = tiles_;
  tensor.first_dim = static_cast<uint8_t>(dims_);
  tensor.hash_only = capture == format::Capture::kHash ? 1 : 0;
  tensor.leading = leading;
  log_.jobs[log_.count++] = {.bytes = layout.bytes(),
                             .sequence = sequence,
                             .slot = slot,
                             .place = log_.taken,
                             .samples = tensor.hash_only != 0 ? 0 : sample_count(layout.values()),
                             .unused = 0};
  log_.taken += log_places(tiles);
  copy_dims(layout, head_.dims + dims_);
  dims_ += layout.rank;
  tiles_ += tiles;
  return true;
}

Fold fold_of(const Log& log, uint32_t first, uint64_t slots) noexcept {
  Fold fold{};
  fold.log = log.address;
  fold.slots = slots;
  fold.count = std::min(log.count - first, Fold::kMaxJobs);
  std::copy_n(log.jobs + first, fold.count, fold.jobs);
  return fold;
}

CopyJob copy_job(const Layout& layout, uint64_t to) noexcept {
  CopyJob job{};
  job.tensor = device_tensor(layout);
  job.to = to;
  copy_dims(layout, job.dims);
  return job;
}

StatsResult read_slot(const ResultSlot& slot, uint64_t count, format::DType dtype,
                      format::Capture capture, Variant variant) noexcept {
  StatsResult result;
  const format::DType walked = walked_dtype(dtype);
  const uint32_t size = format::element_bytes(walked);
  const Tiling tiling = make_tiling(count * size);
  const uint64_t values = count * format::values_in_element(walked);
  std::memcpy(result.range_hashes, slot.range_hashes, hashed_ranges(tiling) * sizeof(uint64_t));
  complete(slot.total, dtype, values, capture, tiling, variant, result);
  if (capture == format::Capture::kHash) return result;
  const uint32_t taken = sample_count(values);
  for (uint32_t i = 0; i < taken; ++i)
    std::memcpy(result.samples + i * size, &slot.samples[i], size);
  result.sample_bytes = taken * size;
  return result;
}

}  // namespace convtrace::stats
