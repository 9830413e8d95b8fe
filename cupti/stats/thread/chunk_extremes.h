#pragma once
/// @file chunk_extremes.h
/// Extremes and signs of a chunk, in as few operations as there are: not of keys but of the bits
/// themselves, or of floats packed two by two.

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/packed_bytes.h"
#include "cupti/stats/tile/packed_halves.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// Extremes of a chunk's elements. NaN and infinities count, with keys and magnitudes beyond the finite
/// ones.
template <DType D>
struct ChunkExtremes {
  typename Element<D>::Key lowest, highest;
  typename Element<D>::Magnitude smallest;
};

/// The least and the largest bits, as signed and as unsigned integers: the extremes on both sides of
/// zero, of two's complement and of sign and magnitude.
template <DType D>
struct RawExtremes {
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Signed = typename E::Key;
  using Unsigned = typename E::Magnitude;

  Signed least = std::numeric_limits<Signed>::max();
  Signed most = std::numeric_limits<Signed>::min();
  Unsigned unsigned_least = std::numeric_limits<Unsigned>::max();
  Unsigned unsigned_most = 0;

  /// @return an element as an integer of a register's width, by its sign if it has one.
  CONVTRACE_HD static Signed number(Bits bits) {
    if constexpr (D == DType::kBool) return bits != 0 ? 1 : 0;
    if constexpr (E::kSigned) return static_cast<std::make_signed_t<Bits>>(bits);
    return static_cast<Signed>(bits);
  }

  CONVTRACE_HD void add(Signed x) {
    const auto bits = static_cast<Unsigned>(x);
    least = lesser(least, x);
    most = greater(most, x);
    unsigned_least = lesser(unsigned_least, bits);
    unsigned_most = greater(unsigned_most, bits);
  }

  [[nodiscard]] CONVTRACE_HD ChunkExtremes<D> extremes() const {
    const auto key = [](auto x) { return E::key(static_cast<Bits>(x)); };
    const auto magnitude = [](auto x) { return E::magnitude(static_cast<Bits>(x)); };
    if constexpr (!E::kSigned) return {key(unsigned_least), key(unsigned_most), unsigned_least};
    const bool negative = least < 0, positive = most >= 0;
    const Unsigned above = magnitude(unsigned_least);
    const Unsigned below = E::kFloat ? magnitude(least) : magnitude(unsigned_most);
    const Unsigned smallest = !negative || above < below ? above : below;
    if constexpr (!E::kFloat) return {key(least), key(most), smallest};
    return {negative ? key(unsigned_most) : key(unsigned_least), positive ? key(most) : key(least),
            smallest};
  }
};

/// The least and the largest byte of words: bytes are positive f16, most of them subnormal, that are
/// ordered as they are.
struct ByteExtremes {
  uint32_t least = 0x00FF00FF, most = 0;

  CONVTRACE_HD void add(uint32_t word) {
    for (const uint32_t halves : {word & 0x00FF00FF, chosen_bytes<0x4341>(word, 0)}) {
      least = least_halves<DType::kF16>(least, halves);
      most = most_halves<DType::kF16>(most, halves);
    }
  }
  CONVTRACE_HD uint32_t lowest() const { return lesser(least & 0xFF, least >> 16); }
  CONVTRACE_HD uint32_t highest() const { return greater(most & 0xFF, most >> 16); }
};

template <DType D>
CONVTRACE_HD ChunkExtremes<D> byte_extremes(const Chunk& chunk) {
  using Key = typename Element<D>::Key;
  constexpr uint32_t kFlip = 0x80808080;  // orders signed bytes
  ByteExtremes plain, flipped;
  CONVTRACE_UNROLLED
  for (const Group& group : chunk.group) {
    CONVTRACE_UNROLLED
    for (const uint32_t word : group.word) {
      plain.add(word);
      if constexpr (Element<D>::kSigned) flipped.add(word ^ kFlip);
    }
  }
  RawExtremes<D> raw;
  if constexpr (Element<D>::kSigned) {
    const auto number = [](uint32_t byte) { return static_cast<Key>(static_cast<int8_t>(byte)); };
    raw.least = number(flipped.lowest() ^ 0x80);
    raw.most = number(flipped.highest() ^ 0x80);
    raw.unsigned_least = static_cast<uint32_t>(number(plain.lowest()));
    raw.unsigned_most = static_cast<uint32_t>(number(plain.highest()));
  } else {
    raw.unsigned_least = plain.lowest();
    raw.unsigned_most = plain.highest();
  }
  return raw.extremes();
}

/// @return the extremes of floats of 8 or 16 bits, computed two at a time. A NaN gives the largest key.
template <DType D>
CONVTRACE_HD ChunkExtremes<D> packed_extremes(const Chunk& chunk) {
  using E = Element<D>;
  uint32_t least = 0, most = 0, nearest = 0;
  bool first = true;
  CONVTRACE_UNROLLED
  for (const Group& group : chunk.group) {
    CONVTRACE_UNROLLED
    for (const uint32_t word : group.word) {
      CONVTRACE_UNROLLED
      for (uint32_t odd = 0; odd < kHalvesOfWord<D>; ++odd) {
        const uint32_t halves = halves_of<D>(word, odd);
        const uint32_t magnitudes = halves & 0x7FFF7FFF;
        least = first ? halves : least_halves<D>(least, halves);
        most = first ? halves : most_halves<D>(most, halves);
        nearest = first ? magnitudes : least_halves<D>(nearest, magnitudes);
        first = false;
      }
    }
  }
  const auto key = [](uint32_t halves, uint32_t high) {
    return E::key(bits_of_half<D>(static_cast<uint16_t>(halves >> 16 * high)));
  };
  const auto magnitude = [](uint32_t halves, uint32_t high) {
    return E::magnitude(bits_of_half<D>(static_cast<uint16_t>(halves >> 16 * high)));
  };
  return {lesser(key(least, 0), key(least, 1)), greater(key(most, 0), key(most, 1)),
          lesser(magnitude(nearest, 0), magnitude(nearest, 1))};
}

template <DType D>
CONVTRACE_HD ChunkExtremes<D> chunk_extremes(const Chunk& chunk) {
  if constexpr (kHasHalves<D>) {
    return packed_extremes<D>(chunk);
  } else if constexpr (sizeof(typename Element<D>::Bits) == 1 && D != DType::kBool) {
    return byte_extremes<D>(chunk);
  } else {
    RawExtremes<D> raw;
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      CONVTRACE_UNROLLED
      for (uint32_t e = 0; e < kPerGroup<D>; ++e)
        raw.add(RawExtremes<D>::number(element_of<D>(group, e)));
    }
    return raw.extremes();
  }
}

/// @return the sum and, for each sign bit of 8-bit elements of a word (or of 16-bit elements of two
/// words), 1 less.
template <uint32_t Size>
CONVTRACE_HD uint32_t minus_signs(uint32_t word, uint32_t next, uint32_t sum) {
  constexpr uint32_t kSigns = Size == 1 ? 0xBA98 : 0xFDB9;
  return dot<true, 1>(chosen_bytes<kSigns>(word, next), 0x01010101, sum);
}

/// @return how many elements of the chunk have their sign bit set; 0 of unsigned types.
template <DType D>
CONVTRACE_HD uint32_t negatives(const Chunk& chunk) {
  if constexpr (!Element<D>::kSigned) return 0;
  constexpr uint32_t kSize = sizeof(typename Element<D>::Bits);
  if constexpr (kSize <= 2) {
    uint32_t minus = 0;
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      minus = minus_signs<kSize>(group.word[0], group.word[1], minus);
      if constexpr (kSize == 1) minus = minus_signs<kSize>(group.word[1], 0, minus);
      minus = minus_signs<kSize>(group.word[2], group.word[3], minus);
      if constexpr (kSize == 1) minus = minus_signs<kSize>(group.word[3], 0, minus);
    }
    return 0 - minus;
  } else {
    uint32_t count = 0;
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      CONVTRACE_UNROLLED
      for (uint32_t e = 0; e < kPerGroup<D>; ++e)
        count += Element<D>::negative(element_of<D>(group, e));
    }
    return count;
  }
}

}  // namespace convtrace::stats
