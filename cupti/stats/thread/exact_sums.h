#pragma once
/// @file exact_sums.h
/// The sums of one thread for integers of 16 and 8 bits: all of them are integers, so no order
/// matters and nothing is rounded before a tile is closed.
///
/// Threads:  a value.

#include <cstdint>

#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/tile/packed_bytes.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

template <DType D>
inline constexpr bool kHasExactSums = !Element<D>::kFloat && sizeof(typename Element<D>::Bits) <= 2;

template <DType D>
class ExactSums {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;
  static constexpr bool kDeviates = false;

  ExactSums() = default;
  CONVTRACE_HD explicit ExactSums(Shift<D> /*none*/) {}

  CONVTRACE_HD void add(Bits bits) {
    const int64_t value = E::value(bits);
    sum_ += value;
    l1_ += static_cast<uint64_t>(value < 0 ? ~value : value);
    squares_ += static_cast<uint64_t>(value * value);
  }

  /// In 32 bits, which hold the sums of a chunk but for squares of halves.
  /// @param chunk  that Tally::add_usual() has taken.
  CONVTRACE_HD void add_usual(const Chunk& chunk) {
    constexpr uint32_t kSize = sizeof(Bits);
    constexpr uint32_t kOnes = 0x01010101;
    constexpr uint32_t kSigns = kSize == 1 ? 0xBA98 : 0xBB99;
    uint32_t sum = 0, l1 = 0, squares = 0;
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      CONVTRACE_UNROLLED
      for (const uint32_t word : group.word) {
        sum = dot<E::kSigned, kSize>(word, kOnes, sum);
        if constexpr (E::kSigned)
          l1 = dot<false, kSize>(word ^ chosen_bytes<kSigns>(word, word), kOnes, l1);
        if constexpr (D == DType::kBool) continue;
        if constexpr (kSize == 1) {
          squares = dot<E::kSigned, kSize>(word, word, squares);
        } else {
          for (uint32_t part = 0; part < 2; ++part) {
            const int64_t value = E::value(static_cast<Bits>(word >> 16 * part));
            squares_ += static_cast<uint64_t>(value * value);
          }
        }
      }
    }
    sum_ += E::kSigned ? int64_t{static_cast<int32_t>(sum)} : int64_t{sum};
    l1_ += E::kSigned ? l1 : sum;
    squares_ += D == DType::kBool ? sum : squares;
  }

  /// @param chunk  behind the tensor's end it is zero, which adds nothing.
  CONVTRACE_HD void add_any(const Chunk& chunk, uint32_t /*left*/) {
    chunk.for_each_rolled([&](const Group& group) {
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) add(element_of<D>(group, e));
    });
  }

  /// @param[in,out] totals  whose counts are there.
  CONVTRACE_HD void put_into(ThreadTotals& totals) const {
    totals.int_sum.low = sum_;
    totals.int_l1.low = static_cast<int64_t>(l1_ + totals.counts.negative);
    totals.int_squares = squares_;
  }

 private:
  int64_t sum_ = 0;
  uint64_t l1_ = 0;  ///< without the 1 by which a negative element's magnitude exceeds ~element
  uint64_t squares_ = 0;
};

}  // namespace convtrace::stats
