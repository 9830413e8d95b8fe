#pragma once
/// @file stats_words.h
/// The fields of Stats, but for the hash, as an array of 64-bit words in the order of their
/// columns.
///
/// Place:    format/file/columns/stats_columns.cpp writes them, reader/columns/stats_rows.cpp reads
///           them.
/// Source:   format/FORMAT.md section 6.4.

#include <array>
#include <bit>

#include "format/model/stats.h"

namespace convtrace::format {

inline constexpr size_t kStatsWords = 21;

/// Without count and hash.
constexpr std::array<uint64_t, kStatsWords> words_of(const Stats& s) {
  return {s.finite,
          s.nan,
          s.pos_inf,
          s.neg_inf,
          s.pos_zero,
          s.neg_zero,
          s.positive,
          s.negative,
          s.subnormal,
          s.saturated,
          s.min.bits,
          s.max.bits,
          s.amax.bits,
          s.amin_nonzero.bits,
          s.sum.lo,
          s.sum.hi,
          s.l1.lo,
          s.l1.hi,
          std::bit_cast<uint64_t>(s.l2),
          std::bit_cast<uint64_t>(s.mean),
          std::bit_cast<uint64_t>(s.std)};
}

/// @param w  kStatsWords words
constexpr Stats stats_of_words(const uint64_t* w, uint64_t count, uint64_t hash) {
  return {.count = count,
          .finite = w[0],
          .nan = w[1],
          .pos_inf = w[2],
          .neg_inf = w[3],
          .pos_zero = w[4],
          .neg_zero = w[5],
          .positive = w[6],
          .negative = w[7],
          .subnormal = w[8],
          .saturated = w[9],
          .min = {w[10]},
          .max = {w[11]},
          .amax = {w[12]},
          .amin_nonzero = {w[13]},
          .sum = {w[14], w[15]},
          .l1 = {w[16], w[17]},
          .l2 = std::bit_cast<double>(w[18]),
          .mean = std::bit_cast<double>(w[19]),
          .std = std::bit_cast<double>(w[20]),
          .hash = hash};
}

/// @return what the column sketch_exponent holds: 0 for no sketch.
constexpr uint64_t sketch_word(const Sketch& sketch) {
  return static_cast<uint64_t>(sketch.exponent - Sketch::kNone);
}
constexpr int16_t sketch_exponent_of(uint64_t word) {
  return static_cast<int16_t>(static_cast<int64_t>(word & 0xFFFF) + Sketch::kNone);
}
/// @return a row of the column sketch. Rotated so that the exponent is a byte of its own.
constexpr uint64_t bucket_word(float bucket) {
  return std::rotl(std::bit_cast<uint32_t>(bucket), 1);
}
constexpr float bucket_of(uint64_t word) {
  return std::bit_cast<float>(std::rotr(static_cast<uint32_t>(word), 1));
}

}  // namespace convtrace::format
