#include "cupti/stats/compute.h"

#include <cstring>

#include "cupti/stats/host_fp.h"
#include "cupti/stats/layout.h"
#include "cupti/stats/stats.h"
#include "cupti/stats/thread_tile.h"

namespace convtrace::stats {
namespace {

/// Groups of a tensor in host memory, at any alignment and with any strides.
struct HostSource {
  const Layout& layout;
  Group load(uint64_t first, uint32_t valid) const {
    Group group;
    gather(layout, first, valid, reinterpret_cast<std::byte*>(group.word));
    return group;
  }
};

template <DType D>
Shift<D> find_shift(const Layout& layout, TileExtent tile) {
  using Bits = typename Element<D>::Bits;
  for (uint64_t i = 0; i < tile.count; ++i) {
    Bits bits;
    gather(layout, tile.first + i, 1, reinterpret_cast<std::byte*>(&bits));
    if (Element<D>::finite(bits)) return Shift<D>::of(bits);
  }
  return {};
}

template <DType D>
Partial compute_tile(const Layout& layout, const Tiling& tiling, uint32_t tile_index,
                     bool hash_only) {
  const TileExtent tile = tile_extent<D>(tiling, tile_index);
  ThreadTotals totals[kThreads];
  if (hash_only) {
    for (uint32_t t = 0; t < kThreads; ++t) {
      totals[t].hash = thread_hash<D>(HostSource{layout}, tile, t);
    }
    combine_threads(totals, combine);
    return close_tile<D>(totals[0], {}, 0);
  }
  const Shift<D> shift = find_shift<D>(layout, tile);
  for (uint32_t t = 0; t < kThreads; ++t) {
    totals[t] = thread_totals<D>(HostSource{layout}, tile, shift, t);
  }
  combine_threads(totals, combine);
  return close_tile<D>(totals[0], shift, tile.count);
}

Partial compute_tile(const Layout& layout, const Tiling& tiling, uint32_t tile, bool hash_only) {
  switch (layout.dtype) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return compute_tile<DType::D>(layout, tiling, tile, hash_only);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      return {};
  }
}

/// Tiles in order: each of 64 threads merges its consecutive ones, then the threads' results merge.
Partial compute_tiles(const Layout& layout, const Tiling& tiling, bool hash_only,
                      StatsResult& result) {
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
