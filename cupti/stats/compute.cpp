#include "cupti/stats/compute.h"

#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/cpu/helper_threads.h"
#include "cupti/stats/cpu/host_fp.h"
#include "cupti/stats/finalize.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/layout.h"
#include "cupti/stats/tile/merge.h"

namespace convtrace::stats {
namespace {

/// Below it the helpers would be woken for less than waking them takes.
constexpr uint64_t kSharedBytes = 512 * 1024;

/// Groups of tiles, which are the turns that helpers take, then the tensor.
/// @param[out] range_hashes  of the words of each range.
Partial compute_tiles(const Layout& layout, const Tiling& tiling, bool hash_only,
                      uint64_t* range_hashes, HelperThreads* helpers) {
  const CpuTileFunction compute_tile = cpu_tiles().front();
  if (tiling.tiles == 1) {  // most values: the room for more would take longer to clear
    const Partial partial = compute_tile(layout, tiling, 0, hash_only);
    range_hashes[0] = partial.hash;
    return hash_only ? Partial{} : partial;
  }
  Partial groups[kThreads];
  uint64_t tile_hashes[kMaxTiles];
  const auto compute_one = [&](uint32_t tile) {
    const Partial partial = compute_tile(layout, tiling, tile, hash_only);
    tile_hashes[tile] = partial.hash;
    return partial;
  };
  const auto compute_group = [&](uint32_t group) {
    const uint32_t first = group * tiling.tiles_per_group;
    if (tiling.tiles_per_group == 1) {
      groups[group] = compute_one(first);
      return;
    }
    Partial tiles[kMaxTiles / kThreads];
    for (uint32_t i = 0; i < tiling.group_size(group); ++i) tiles[i] = compute_one(first + i);
    if (!hash_only) groups[group] = merge_parts(tiles, tiling.group_size(group));
  };
  if (helpers != nullptr && tiling.bytes >= kSharedBytes) {
    helpers->for_each(tiling.groups, compute_group);
  } else {
    for (uint32_t group = 0; group < tiling.groups; ++group) compute_group(group);
  }
  const uint64_t factor = tile_factor(tiling);
  const auto tile_hash = [&](uint32_t i) { return tile_hashes[i]; };
  for (uint32_t range = 0; range < hashed_ranges(tiling); ++range)
    range_hashes[range] = range_hash(tiling, range, factor, tile_hash);
  return hash_only || tiling.groups == 0 ? Partial{} : merge_parts(groups, tiling.groups);
}

void take_samples(const Layout& layout, StatsResult& result) {
  const uint32_t size = format::element_bytes(layout.dtype);
  const uint64_t count = layout.values();
  const uint32_t taken = sample_count(count);
  for (uint32_t i = 0; i < taken; ++i)
    gather_values(layout, sample_position(i, count), 1, result.samples + i * size);
  result.sample_bytes = taken * size;
}

}  // namespace

void complete(const Partial& total, format::DType dtype, uint64_t count, format::Capture capture,
              const Tiling& tiling, Variant variant, StatsResult& result) noexcept {
  if (capture == format::Capture::kHash) {
    result.stats.count = count;
  } else {
    result.stats = finalize(total, dtype);
    result.range_count = tiling.ranges;
    result.variant = static_cast<uint32_t>(variant_of(walked_dtype(dtype), variant));
  }
  result.stats.hash = finalize_hashes(result.range_hashes, tiling);
}

Status compute_on_cpu(const TensorView& view, format::Capture capture, StatsResult& result,
                      HelperThreads* helpers) noexcept {
  result.stats = {};
  result.variant = result.range_count = result.sample_bytes = 0;
  Layout layout;
  CONVTRACE_TRY(flatten(view, layout));
  const Tiling tiling = make_tiling(layout.bytes());
  const DefaultFloatingPoint scope;
  const bool hash_only = capture == format::Capture::kHash;
  const Partial total = compute_tiles(layout, tiling, hash_only, result.range_hashes, helpers);
  complete(total, view.dtype, layout.values(), capture, tiling, Variant::kWide, result);
  if (!hash_only) take_samples(layout, result);
  return kOkStatus;
}

}  // namespace convtrace::stats
