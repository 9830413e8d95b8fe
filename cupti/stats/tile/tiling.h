#pragma once
/// @file tiling.h
/// How a tensor is cut so that every machine adds the same numbers in the same order.
///
/// The logical byte stream is cut into tiles, a tile into rows of 1 KiB, a row into 64 groups of 16
/// bytes. Group g of every row belongs to thread g of the tile; element e of a group adds into
/// accumulator e mod kLanes of that thread. Accumulators of a thread, then threads, then tiles are
/// combined in fixed trees. Sizes depend on the byte count alone, so neither the GPU, its
/// occupancy, the batch nor the number of CPU threads can change a bit.
///
/// Why these sizes: a group is one vector load of a device thread; 4 accumulators are one vector
/// register of a CPU; 16 KiB keeps a tile in a first-level cache and still gives a 4 MB activation
/// two blocks for every multiprocessor.

#include <cstdint>

#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/hash.h"
#include "format/model/stats.h"

namespace convtrace::stats {

inline constexpr uint32_t kGroupBytes = 16;
inline constexpr uint32_t kThreads = 64;
inline constexpr uint32_t kRowBytes = kThreads * kGroupBytes;
inline constexpr uint32_t kRowWords = kRowBytes / kHashWordBytes;
inline constexpr uint32_t kMaxTiles = 2048;
inline constexpr uint32_t kMinTileShift = 14;
inline constexpr uint64_t kMinTileBytes = uint64_t{1} << kMinTileShift;
inline constexpr uint32_t kMaxHashRanges = 256;
inline constexpr uint32_t kMinRangeShift = 16;
inline constexpr uint64_t kMinRangeBytes = uint64_t{1} << kMinRangeShift;
/// Above it, 32-bit counters of a tile could overflow.
inline constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 41;

template <DType D>
inline constexpr uint32_t kPerGroup = kGroupBytes / sizeof(typename Element<D>::Bits);
template <DType D>
inline constexpr uint32_t kPerRow = kThreads* kPerGroup<D>;
template <DType D>
inline constexpr uint32_t kLanes = kPerGroup<D> < 4 ? kPerGroup<D> : 4;

CONVTRACE_HD constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

/// Cut of a tensor of `bytes` logical bytes. Sizes are powers of two, so that no thread of a device
/// divides by them.
struct Tiling {
  uint64_t bytes = 0;
  uint32_t tile_shift = kMinTileShift;    ///< a tile has 2^tile_shift bytes
  uint32_t range_shift = kMinRangeShift;  ///< a range has 2^range_shift bytes: whole tiles
  uint32_t tiles = 0;                     ///< at most kMaxTiles; the last may be short
  uint32_t tiles_per_group = 0;           ///< consecutive tiles that are merged first
  uint32_t groups = 0;                    ///< at most kThreads; the last may have fewer tiles
  uint32_t ranges = 0;                    ///< at most kMaxHashRanges; 0 if one range would do

  [[nodiscard]] CONVTRACE_HD constexpr uint64_t tile_bytes() const {
    return uint64_t{1} << tile_shift;
  }
  [[nodiscard]] CONVTRACE_HD constexpr uint64_t range_bytes() const {
    return uint64_t{1} << range_shift;
  }
  /// @return tiles of a group.
  [[nodiscard]] CONVTRACE_HD constexpr uint32_t group_size(uint32_t group) const {
    const uint32_t left = tiles - group * tiles_per_group;
    return left < tiles_per_group ? left : tiles_per_group;
  }
};

CONVTRACE_HD constexpr Tiling make_tiling(uint64_t bytes) {
  const auto units = [bytes](uint32_t shift) {
    return static_cast<uint32_t>((bytes + (uint64_t{1} << shift) - 1) >> shift);
  };
  Tiling tiling;
  tiling.bytes = bytes;
  while (units(tiling.tile_shift) > kMaxTiles) ++tiling.tile_shift;
  while (units(tiling.range_shift) > kMaxHashRanges) ++tiling.range_shift;
  tiling.tiles = units(tiling.tile_shift);
  tiling.tiles_per_group = (tiling.tiles + kThreads - 1) / kThreads;
  tiling.groups = tiling.tiles == 0 ? 0 : (tiling.tiles - 1) / tiling.tiles_per_group + 1;
  const uint32_t ranges = units(tiling.range_shift);
  tiling.ranges = ranges > 1 ? ranges : 0;
  return tiling;
}

CONVTRACE_HD constexpr uint64_t tile_length(const Tiling& tiling, uint32_t tile) {
  const uint64_t rest = tiling.bytes - tile * tiling.tile_bytes();
  return rest < tiling.tile_bytes() ? rest : tiling.tile_bytes();
}

/// One tile of a tensor, in values.
struct TileExtent {
  uint64_t first = 0;
  uint64_t count = 0;
};

/// @return values that `bytes` bytes of a walked type hold.
CONVTRACE_HD constexpr uint64_t values_in(uint64_t bytes, DType dtype) {
  return bytes / format::element_bytes(dtype) * format::values_in_element(dtype);
}

template <DType D>
CONVTRACE_HD TileExtent tile_extent(const Tiling& tiling, uint32_t tile) {
  return {values_in(tile * tiling.tile_bytes(), D), values_in(tile_length(tiling, tile), D)};
}

/// @return how many range_hash() makes: the whole tensor is one range if it has no others.
CONVTRACE_HD constexpr uint32_t hashed_ranges(const Tiling& tiling) {
  return tiling.ranges == 0 ? 1 : tiling.ranges;
}

/// Tiles of a range: both sizes are the smallest powers of two that the limits of their numbers allow.
inline constexpr uint32_t kMaxTilesOfRange = kMaxTiles / kMaxHashRanges;
static_assert(kMinRangeBytes / kMinTileBytes <= kMaxTilesOfRange);

/// @return the factor that each preceding tile contributes to the hash of a tile.
CONVTRACE_HD constexpr uint64_t tile_factor(const Tiling& tiling) {
  return hash_factor(tiling.tile_bytes() / kHashWordBytes);
}

/// @param tile_hash  returns the hash of tile i as if it were the first. @param factor  tile_factor(); not
/// used if there is one tile. @return the hash of a range as if it were the first. All hashes are loaded
/// before one is used, and neighbours are joined first: a device waits for one load, and for three
/// products in a row.
template <typename TileHash>
CONVTRACE_HD uint64_t range_hash(const Tiling& tiling, uint32_t range, uint64_t factor,
                                 TileHash tile_hash) {
  const uint32_t tiles = 1u << (tiling.range_shift - tiling.tile_shift);
  const uint32_t first = range * tiles;
  uint64_t hash[kMaxTilesOfRange];
  CONVTRACE_UNROLLED
  for (uint32_t i = 0; i < kMaxTilesOfRange; ++i)
    hash[i] = i < tiles && first + i < tiling.tiles ? tile_hash(first + i) : 0;
  CONVTRACE_UNROLLED
  for (uint32_t pairs = kMaxTilesOfRange / 2; pairs > 0; pairs /= 2) {
    for (uint32_t i = 0; i < pairs; ++i)
      hash[i] = residue_sum(hash[2 * i], residue_product(hash[2 * i + 1], factor));
    factor = residue_product(factor, factor);
  }
  return hash[0];
}

/// 16 bytes of the logical stream as 4 words; bytes behind the tensor's end are zero.
struct Group {
  uint32_t word[4] = {};
};

template <DType D>
CONVTRACE_HD typename Element<D>::Bits element_of(const Group& group, uint32_t e) {
  using Bits = typename Element<D>::Bits;
  if constexpr (sizeof(Bits) == 8) {
    return (static_cast<uint64_t>(group.word[2 * e + 1]) << 32) | group.word[2 * e];
  } else {
    constexpr uint32_t kPerWord = 4 / sizeof(Bits);
    return static_cast<Bits>(group.word[e / kPerWord] >> (e % kPerWord * sizeof(Bits) * 8));
  }
}

inline constexpr uint32_t kChunkGroups = 4;

/// Groups of consecutive rows that a thread loads together, while it uses those before them.
struct Chunk {
  Group group[kChunkGroups];

  /// @return the chunk of `change(group)`, likewise.
  template <typename Change>
  CONVTRACE_HD Chunk changed_rolled(Change change) const {
    Chunk rest = *this;
    CONVTRACE_ROLLED
    for (uint32_t i = 0; i < kChunkGroups; ++i) {
      const Group changed = change(rest.group[0]);
      for (uint32_t j = 1; j < kChunkGroups; ++j) rest.group[j - 1] = rest.group[j];
      rest.group[kChunkGroups - 1] = changed;
    }
    return rest;
  }

  /// Calls `use(group)` in a loop that is not unrolled, for code that is rarely run. An index
  /// that is no constant would put the groups into a GPU's memory.
  template <typename Use>
  CONVTRACE_HD void for_each_rolled(Use use) const {
    Chunk rest = *this;
    CONVTRACE_ROLLED
    for (uint32_t i = 0; i < kChunkGroups; ++i) {
      use(rest.group[0]);
      for (uint32_t j = 1; j < kChunkGroups; ++j) rest.group[j - 1] = rest.group[j];
    }
  }
};

inline constexpr uint32_t kSampleCount = 8;
/// Tensors of up to so many real elements are sampled whole: the most samples that there are.
inline constexpr uint32_t kWholeCount = format::kMaxWhole;

CONVTRACE_HD constexpr uint32_t sample_count(uint64_t count) {
  return count <= kWholeCount ? static_cast<uint32_t>(count) : kSampleCount;
}

/// @return the element that sample i < sample_count(count) is: floor(i * count / 8) of large
/// tensors.
CONVTRACE_HD constexpr uint64_t sample_position(uint32_t i, uint64_t count) {
  return count <= kWholeCount ? i
                              : count / kSampleCount * i + count % kSampleCount * i / kSampleCount;
}

/// Combines 64 values of consecutive threads into the first: inside each half with strides 16 to 1
/// (a warp's shuffles), then the two halves.
/// @param count  values that there are; the others are taken as such that change nothing.
template <typename T, typename Combine>
CONVTRACE_HD void combine_threads(T* values, Combine combine, uint32_t count = kThreads) {
  const auto take = [&](uint32_t to, uint32_t from) {
    if (from < count) values[to] = combine(values[to], values[from]);
  };
  for (uint32_t stride = 16; stride > 0; stride /= 2) {
    for (uint32_t i = 0; i < stride; ++i) {
      take(i, i + stride);
      take(32 + i, 32 + i + stride);
    }
  }
  take(0, 32);
}

}  // namespace convtrace::stats
