#pragma once
/// @file compute.h
/// Statistics of a tensor in host memory: the reference implementation. The definition of every
/// statistic is compiled for the host and for devices.
///
/// Elements are taken in row-major logical order, whatever the strides. The same input gives the
/// same bits on every machine:
///
///   tile/dtype_decode.h    what an element's bits mean: value, class, order
///   tile/unpack.h          elements that are taken wider than they lie in memory
///   tile/hash.h            the hash of the logical bytes
///   tile/tiling.h          which thread of which tile an element belongs to, and the trees
///   tile/sketch_index.h    the bucket and the sign of an element in a sketch
///   tile/sketch.h          a tile's sketch, lane by lane
///   tile/partial.h         how consecutive tiles merge
///   thread/thread_tile.h   the loop of one thread over its part of a tile
///   thread/accumulator.h   what it gathers there, and a tile's result
///   thread/thread_hash.h   the hash, by a warp
///   thread/thread_sketch.h the sketch, by a warp
///   thread/tally.h         counts and extremes
///   thread/wide_sums.h     sums in f64: types of 32 and 64 bits
///   thread/chunk_sums.h    sums of floats of 16 bits and less
///   thread/exact_sums.h    sums of integers of 8 and 16 bits
///   thread/narrow_sums.h   sums of f32 in pairs of f32: for GPUs with slow f64
///   finalize.h             divisions and square roots, on the host
///
/// Counts, extremes, hashes and integer sums do not depend on order at all; floating sums are equal
/// because the order is fixed and every operation is an explicit IEEE operation (arith.h).
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
