#pragma once
/// @file compute.h
/// Statistics of a tensor in host memory: the reference implementation of cupti/stats/stats.h.
///
/// Threads:  reentrant. Saves and restores MXCSR, so the host's rounding and flush modes neither
///           matter nor change.
/// Errors:   kInvalidArgument (rank > kMaxDims, null data with elements); never throws.
/// Source:   docs/recording.md "Statistics"; bit-equal to the CUDA kernels (tiers T0 and T1 there).

#include <cstddef>
#include <cstdint>

#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tensor_view.h"
#include "cupti/stats/tile/tiling.h"
#include "format/base/status.h"
#include "format/model/events.h"
#include "format/model/stats.h"

namespace convtrace::stats {

class HelperThreads;

/// Everything one pass yields; fixed size, so that it can lie in a ring slot shared with a device.
struct StatsResult {
  format::Stats stats;
  uint32_t variant = 0;      ///< a Variant
  uint32_t range_count = 0;  ///< at most format::kMaxRanges; 0 when the tensor is one range
  uint64_t range_hashes[format::kMaxRanges];  ///< only the first range_count, or one, are set
  uint32_t sample_bytes = 0;                  ///< bytes used in `samples`: sample_count() values
  std::byte samples[kWholeCount * 8];         ///< only the first sample_bytes are set
};

/// Puts the result of a value into its event. The event borrows the hashes of ranges and the samples
/// from `result`, which must outlive it.
/// @param with_samples  whether samples are wanted; a hash alone has none.
inline void describe(format::TensorStats& event, const StatsResult& result, bool with_samples) {
  event.stats = result.stats;
  event.variant = result.variant;
  event.range_hashes = {result.range_hashes, result.range_count};
  if (with_samples) event.samples = {result.samples, result.sample_bytes};
}

/// Completes a result whose range_hashes range_hash() has made: all but the samples.
/// @param total  of all tiles of `count` values of `dtype`; capture kHash: not looked at.
/// @param variant  of sums of f32.
void complete(const Partial& total, format::DType dtype, uint64_t count, format::Capture capture,
              const Tiling& tiling, Variant variant, StatsResult& result) noexcept;

/// Computes the hash alone (Capture::kHash: hash and count) or everything.
/// @param helpers  share the work of a large tensor; the result is the same to the last bit.
[[nodiscard]] Status compute_on_cpu(const TensorView& view, format::Capture capture,
                                    StatsResult& result, HelperThreads* helpers = nullptr) noexcept;

}  // namespace convtrace::stats
