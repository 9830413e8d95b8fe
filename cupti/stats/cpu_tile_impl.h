// One tile of a tensor in host memory. Included once per instruction set, by a file that defines
// CONVTRACE_CPU_TILE as the name of its function.
//
// The tile is taken in blocks that stay in the first-level cache, each walked three times: counts
// and extremes, floating sums, hash. Three simple loops keep their accumulators in registers; one
// loop with all of them would not.
#pragma once

#include <type_traits>

#include "cupti/stats/accumulator.h"
#include "cupti/stats/cpu_sums.h"
#include "cupti/stats/cpu_tally.h"
#include "cupti/stats/cpu_tile.h"
#include "cupti/stats/simd.h"
#include "cupti/stats/thread_tile.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kBlockBytes = 8 * kRowBytes;
static_assert(kBlockBytes % kTallyRunBytes == 0);

/// Word keys in the order in which a vector of 8 words meets them: even words, then odd words, and
/// the upper halves of both where a multiplication can reach them.
struct VectorKeys {
  alignas(kVectorBytes) uint64_t even[kBlockWords / 2] = {};
  alignas(kVectorBytes) uint64_t odd[kBlockWords / 2] = {};
  alignas(kVectorBytes) uint64_t even_high[kBlockWords / 2] = {};
  alignas(kVectorBytes) uint64_t odd_high[kBlockWords / 2] = {};

  constexpr VectorKeys() {
    for (uint32_t i = 0; i < kBlockWords / 2; ++i) {
      even[i] = word_key(2 * i);
      odd[i] = word_key(2 * i + 1);
      even_high[i] = even[i] >> 32;
      odd_high[i] = odd[i] >> 32;
    }
  }
};
constexpr VectorKeys kVectorKeys;

CONVTRACE_INLINE uint64_t hash_row(const std::byte* row) {
  U64x4 low{}, high{};
  for (uint32_t i = 0; i < kBlockWords / 2; i += 4) {
    const auto words = load<U32x8>(row + i * 8);
    const auto even = as<U64x4>(words ^ (words >> 16));
    const auto odd = even >> 32;
    low += mul_low_halves(even, load<U64x4>(kVectorKeys.even + i));
    low += mul_low_halves(odd, load<U64x4>(kVectorKeys.odd + i));
    high += mul_low_halves(even, load<U64x4>(kVectorKeys.even_high + i));
    high += mul_low_halves(odd, load<U64x4>(kVectorKeys.odd_high + i));
  }
  const U64x4 sums = low + (high << 32);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

/// Asks for the row in the next block that is as far in it as `row` in its own. Otherwise nothing
/// comes from memory while a block is walked, and all the next one is waited for.
CONVTRACE_INLINE void prefetch_next_block(const std::byte* row) {
  constexpr uint32_t kLineBytes = 64;
  for (uint32_t at = 0; at < kRowBytes; at += kLineBytes) {
    __builtin_prefetch(row + kBlockBytes + at);
  }
}

uint64_t hash_bytes(const std::byte* data, uint32_t bytes, uint64_t first_row) {
  uint64_t hash = 0;
  uint64_t row = first_row;
  for (; bytes >= kRowBytes; bytes -= kRowBytes, data += kRowBytes) {
    prefetch_next_block(data);
    hash += hash_row(data) * block_key(row++);
  }
  for (uint32_t at = 0; at < bytes; at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, data + at, bytes - at < 4 ? bytes - at : 4);
    hash += hash_word(word, row * kBlockWords + at / 4);
  }
  return hash;
}

template <DType D>
struct TileState {
  using E = Element<D>;
  using Bits = typename E::Bits;
  static constexpr uint32_t kElementBytes = sizeof(Bits);

  Shift<D> shift;
  Tally<D> tally;
  TileLanes<D> lanes;
  IntSum int_sum, int_l1;
  uint64_t hash = 0;

  void add_block(const std::byte* data, uint32_t bytes) {
    const uint32_t rows = bytes / kRowBytes;
    const uint32_t strange_before = tally.counts.nan + tally.counts.pos_inf + tally.counts.neg_inf;
    uint32_t at = 0;
    for (; bytes - at >= kTallyRunBytes; at += kTallyRunBytes) {
      VectorTally<D>::add_run(data + at, kTallyRunBytes, tally);
    }
    for (; at < bytes; at += kElementBytes) tally.add(load<Bits>(data + at));
    const uint32_t strange = tally.counts.nan + tally.counts.pos_inf + tally.counts.neg_inf;
    if (strange == strange_before) {
      add_rows<D, true>(data, rows, shift, lanes);
    } else if constexpr (E::kFloat) {
      add_rows<D, false>(data, rows, shift, lanes);
    }
    const uint32_t done = rows * kRowBytes;
    add_part_of_row<D>(data + done, (bytes - done) / kElementBytes, shift, lanes);
    if constexpr (!E::kFloat) add_integers(data, bytes);
  }

  void add_integers(const std::byte* data, uint32_t bytes) {
    IntSum sum, l1;  // local: bytes could alias members, and the loop would stay scalar
    for (uint32_t at = 0; at < bytes; at += kElementBytes) {
      const auto bits = load<Bits>(data + at);
      sum.add(E::value(bits));
      l1.add(E::magnitude(bits));
    }
    int_sum.add(sum);
    int_l1.add(l1);
  }

  Partial close(uint64_t count) const {
    ThreadTotals totals;
    totals.counts = tally.counts;
    totals.extremes = tally.extremes();
    totals.sum = combine_all<D>(lanes.sum);
    totals.l1 = combine_all<D>(lanes.l1);
    totals.squares = combine_all<D>(lanes.squares);
    totals.deviations = combine_all<D>(lanes.deviations);
    totals.squared_deviations = combine_all<D>(lanes.squared_deviations);
    totals.int_sum = int_sum;
    totals.int_l1 = int_l1;
    totals.hash = hash;
    return close_tile(totals, shift.parts(), count);
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

/// Calls `add(data, bytes, first row)` for consecutive blocks of dense bytes of the tile.
template <typename Add>
CONVTRACE_INLINE void for_each_block(const Layout& layout, const Tiling& tiling, uint32_t tile,
                                     Add add) {
  alignas(kVectorBytes) std::byte gathered[kBlockBytes];
  const uint32_t size = format::element_bytes(layout.dtype);
  const uint64_t begin = tile * tiling.tile_bytes;
  const uint64_t end = begin + tile_length(tiling, tile);
  for (uint64_t at = begin; at < end; at += kBlockBytes) {
    const auto bytes = static_cast<uint32_t>(end - at < kBlockBytes ? end - at : kBlockBytes);
    const std::byte* data = layout.data + at;
    if (layout.rank != 0) {
      gather(layout, at / size, bytes / size, gathered);
      data = gathered;
    }
    add(data, bytes, at / kRowBytes);
  }
}

template <DType D>
Partial tile_of(const Layout& layout, const Tiling& tiling, uint32_t tile) {
  const TileExtent extent = tile_extent<D>(tiling, tile);
  TileState<D> state;
  state.shift = find_shift<D>(layout, extent);
  for_each_block(layout, tiling, tile, [&](const std::byte* data, uint32_t bytes, uint64_t row) {
    state.add_block(data, bytes);
    state.hash += hash_bytes(data, bytes, row);
  });
  return state.close(extent.count);
}

}  // namespace

Partial CONVTRACE_CPU_TILE(const Layout& layout, const Tiling& tiling, uint32_t tile,
                           bool hash_only) noexcept {
  if (hash_only) {
    Partial partial;
    for_each_block(layout, tiling, tile, [&](const std::byte* data, uint32_t bytes, uint64_t row) {
      partial.hash += hash_bytes(data, bytes, row);
    });
    return partial;
  }
  switch (layout.dtype) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return tile_of<DType::D>(layout, tiling, tile);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      return {};
  }
}

}  // namespace convtrace::stats
