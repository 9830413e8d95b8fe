#include "cupti/stats/compute.h"

#include "cupti/stats/cpu_tile.h"
#include "cupti/stats/host_fp.h"
#include "cupti/stats/layout.h"
#include "cupti/stats/stats.h"

namespace convtrace::stats {
namespace {

/// Tiles in order: each of 64 threads merges its consecutive ones, then the threads' results merge.
Partial compute_tiles(const Layout& layout, const Tiling& tiling, bool hash_only,
                      StatsResult& result) {
  const CpuTileFunction compute_tile = cpu_tile();
  Partial threads[kThreads];
  const auto tiles_per_range = tiling.range_bytes / tiling.tile_bytes;
  for (uint32_t tile = 0; tile < tiling.tiles; ++tile) {
    const Partial partial = compute_tile(layout, tiling, tile, hash_only);
    if (result.range_count > 0) result.range_hashes[tile / tiles_per_range] += partial.hash;
    Partial& merged = threads[tile / tiling.tiles_per_thread];
    merged = tile % tiling.tiles_per_thread == 0 ? partial : merge(merged, partial);
  }
  combine_threads(threads, [](const Partial& a, const Partial& b) { return merge(a, b); });
  return threads[0];
}

void take_samples(const Layout& layout, StatsResult& result) {
  const uint32_t size = format::element_bytes(layout.dtype);
  const auto taken =
      static_cast<uint32_t>(layout.count < kSampleCount ? layout.count : kSampleCount);
  for (uint32_t i = 0; i < taken; ++i) {
    gather(layout, sample_position(i, layout.count), 1, result.samples + i * size);
  }
  result.sample_bytes = taken * size;
}

}  // namespace

Status compute_on_cpu(const TensorView& view, format::Capture capture,
                      StatsResult& result) noexcept {
  result = {};
  Layout layout;
  CONVTRACE_TRY(flatten(view, layout));
  const Tiling tiling = make_tiling(layout.bytes());
  const DefaultFloatingPoint scope;
  if (capture == format::Capture::kHash) {
    result.stats =
        finalize_hash(compute_tiles(layout, tiling, true, result).hash, layout.count, tiling);
    return kOkStatus;
  }
  result.range_count = tiling.ranges;
  result.stats = finalize(compute_tiles(layout, tiling, false, result), view.dtype, tiling);
  take_samples(layout, result);
  return kOkStatus;
}

}  // namespace convtrace::stats
