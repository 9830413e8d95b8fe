#pragma once
/// @file tally.h
/// Counts and extremes, which do not depend on the order of elements.

#include <cstdint>

#include "cupti/stats/thread/chunk_extremes.h"
#include "cupti/stats/thread/chunk_sums.h"
#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// Counts and extremes of elements of one type.
template <DType D>
struct Tally {
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Key = typename E::Key;
  using Magnitude = typename E::Magnitude;
  static constexpr Key kMaxKey = sizeof(Key) == 8 ? static_cast<Key>(INT64_MAX) : INT32_MAX;
  static constexpr auto kNoneBelow = static_cast<Magnitude>(~Magnitude{0});

  TileCounts counts;
  Key min_key = kMaxKey;
  Key max_key = -kMaxKey - 1;
  /// Smallest magnitude less one, which puts zero last.
  Magnitude min_below = kNoneBelow;

  CONVTRACE_HD void add(Bits bits) {
    const bool negative = E::negative(bits);
    if (!E::finite(bits)) {
      const bool infinite = E::infinite(bits);
      counts.nan += !infinite;
      counts.pos_inf += infinite && !negative;
      counts.neg_inf += infinite && negative;
      counts.negative += infinite && negative;
      return;
    }
    const Magnitude magnitude = E::magnitude(bits);
    counts.subnormal += E::subnormal(bits);
    counts.saturated += E::saturated(bits);
    counts.pos_zero += magnitude == 0 && !negative;
    counts.neg_zero += magnitude == 0 && negative;
    counts.negative += magnitude != 0 && negative;
    add_extremes(E::key(bits), E::key(bits), static_cast<Magnitude>(magnitude - 1));
  }

  /// The same for all elements of a chunk, in far fewer instructions.
  /// @return false, and nothing is counted, if one is NaN, infinite, saturated or out of the range
  /// of ChunkRange: a rare chunk.
  CONVTRACE_HD bool add_usual(const Chunk& chunk) {
    if constexpr (D == DType::kBool) return add_usual_bools(chunk);
    const auto [lowest, highest, smallest] = chunk_extremes<D>(chunk);
    if constexpr (D == DType::kF4E2M1FN) {
      add_extremes(lowest, highest, count_f4(chunk, smallest));
      return true;
    }
    if (E::reaches_limits(lowest, highest)) return false;
    if constexpr (ChunkRange<D>::kLimited) {
      const Magnitude low = E::magnitude(E::bits_of_key(lowest));
      const Magnitude high = E::magnitude(E::bits_of_key(highest));
      if (!ChunkRange<D>::holds(low > high ? low : high)) return false;
    }
    counts.negative += negatives<D>(chunk);
    auto below = static_cast<Magnitude>(smallest - 1);
    if (smallest < E::kUsual) {
      below = kNoneBelow;
      chunk.for_each_rolled([&](const Group& group) {
        const Magnitude least = count_smallest(group);
        below = least < below ? least : below;
      });
    }
    add_extremes(lowest, highest, below);
    return true;
  }

  /// Those of PyTorch, whose bytes are 0 and 1.
  CONVTRACE_HD bool add_usual_bools(const Chunk& chunk) {
    uint32_t all = 0, ones = 0;
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      CONVTRACE_UNROLLED
      for (const uint32_t word : group.word) {
        all |= word;
        ones += word;  // at most 16 in a byte
      }
    }
    if ((all & 0xFEFEFEFE) != 0) return false;
    const uint32_t set = ones * 0x01010101 >> 24;
    const uint32_t zeros = kChunkGroups * kPerGroup<D> - set;
    counts.pos_zero += zeros;
    add_extremes(zeros == 0, set != 0, set != 0 ? 0 : kNoneBelow);
    return true;
  }

  /// Counts all elements, four at a time: of f4e2m1fn no value is rare.
  /// @param smallest  magnitude. @return the least one but zero, less one.
  CONVTRACE_HD Magnitude count_f4(const Chunk& chunk, Magnitude smallest) {
    constexpr uint32_t kOnes = 0x01010101, kSigns = 0x80 * kOnes;
    constexpr uint32_t kLeast = 0x10;                                  // least magnitude but zero
    uint32_t some = 0, normal = 0, largest = 0, signs = 0, minus = 0;  // bytes, at most 16
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      CONVTRACE_UNROLLED
      for (const uint32_t word : group.word) {
        const uint32_t magnitudes = word & ~kSigns;
        const auto reach = [&](uint32_t limit) {
          return ((magnitudes + (0x80 - limit) * kOnes) & kSigns) >> 7;
        };
        some += reach(kLeast);
        normal += reach(E::kMinNormal);
        largest += reach(E::kMaxFinite);
        signs += word >> 7 & kOnes;
        minus += word >> 7 & reach(kLeast);
      }
    }
    const auto total = [](uint32_t bytes) { return bytes * kOnes >> 24; };
    const uint32_t neg_zeros = total(signs) - total(minus);
    const uint32_t subnormals = total(some) - total(normal);
    counts.neg_zero += neg_zeros;
    counts.pos_zero += kChunkGroups * kPerGroup<D> - total(some) - neg_zeros;
    counts.negative += total(minus);
    counts.subnormal += subnormals;
    counts.saturated += total(largest);
    if (smallest != 0) return smallest - 1;
    if (subnormals != 0) return kLeast - 1;
    Magnitude below = kNoneBelow;
    chunk.for_each_rolled([&](const Group& group) {
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        const auto here = static_cast<Magnitude>(E::magnitude(element_of<D>(group, e)) - 1);
        below = here < below ? here : below;
      }
    });
    return below;
  }

  /// @param left  elements of the tile from the chunk's first one on.
  CONVTRACE_HD void add_any(const Chunk& chunk, uint32_t left) {
    chunk.for_each_rolled([&](const Group& group) {
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        if (e < left) add(element_of<D>(group, e));
      }
      left = left > kPerRow<D> ? left - kPerRow<D> : 0;
    });
  }

  CONVTRACE_HD void add(const Tally& other) {
    counts.add(other.counts);
    add_extremes(other.min_key, other.max_key, other.min_below);
  }

  CONVTRACE_HD void add_extremes(Key min, Key max, Magnitude below) {
    min_key = min < min_key ? min : min_key;
    max_key = max > max_key ? max : max_key;
    min_below = below < min_below ? below : min_below;
  }

  /// Zeros and subnormals, whose signs are counted. @return the least magnitude but zero, less one.
  CONVTRACE_HD Magnitude count_smallest(const Group& group) {
    Magnitude least = kNoneBelow;
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      const Bits bits = element_of<D>(group, e);
      const auto below = static_cast<Magnitude>(E::magnitude(bits) - 1);
      const bool zero = below == kNoneBelow;
      least = below < least ? below : least;
      if constexpr (E::kFloat) {
        counts.subnormal += E::subnormal(bits);
        counts.pos_zero += zero && !E::negative(bits);
        counts.neg_zero += zero && E::negative(bits);
        counts.negative -= zero && E::negative(bits);
      } else {
        counts.pos_zero += zero;
        counts.saturated += zero && E::saturated(0);
      }
    }
    return least;
  }

  CONVTRACE_HD Extremes extremes() const {
    if (min_key > max_key) return {};
    return {min_key, max_key, min_below == kNoneBelow ? UINT64_MAX : uint64_t{min_below}};
  }
};

}  // namespace convtrace::stats
