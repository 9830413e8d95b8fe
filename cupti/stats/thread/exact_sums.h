#pragma once
/// @file exact_sums.h
/// The sums of one thread for integers of 16 and 8 bits: all of them are integers, so no order
/// matters and nothing is rounded before a tile is closed.
///
/// Threads:  a value.

#include <cstdint>

#include "cupti/stats/thread/chunk_extremes.h"
#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

template <DType D>
inline constexpr bool kHasExactSums = !Element<D>::kFloat && sizeof(typename Element<D>::Bits) <= 2;

template <DType D>
class ExactSums {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;

  ExactSums() = default;
  CONVTRACE_HD explicit ExactSums(Shift<D> /*none*/) {}

  CONVTRACE_HD void add(Bits bits) {
    const int64_t value = E::value(bits);
    sum_ += value;
    l1_ += static_cast<uint64_t>(value < 0 ? ~value : value);
    squares_ += static_cast<uint64_t>(value * value);
  }

  /// @param chunk  that Tally::add_usual() has taken.
  CONVTRACE_HD void add_usual(const Chunk& chunk) {
#if defined(__CUDA_ARCH__)
    add_packed(chunk);
#else
    add_any(chunk, UINT32_MAX);
#endif
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
#if defined(__CUDA_ARCH__)
  /// Adds up the products of four bytes, or of two halves and the first two bytes of `b`.
  template <bool Signed>
  __device__ __forceinline__ static uint32_t dot(uint32_t a, uint32_t b, uint32_t sum) {
    const auto signed_a = static_cast<int>(a), signed_b = static_cast<int>(b);
    const auto signed_sum = static_cast<int>(sum);
    if constexpr (sizeof(Bits) == 1) {
      return Signed ? static_cast<uint32_t>(__dp4a(signed_a, signed_b, signed_sum))
                    : __dp4a(a, b, sum);
    } else {
      return Signed ? static_cast<uint32_t>(__dp2a_lo(signed_a, signed_b, signed_sum))
                    : __dp2a_lo(a, b, sum);
    }
  }

  /// The same sums in 32 bits, which hold those of a chunk but for squares of halves.
  __device__ __forceinline__ void add_packed(const Chunk& chunk) {
    constexpr uint32_t kOnes = 0x01010101;
    constexpr uint32_t kSigns = sizeof(Bits) == 1 ? 0xBA98 : 0xBB99;
    uint32_t sum = 0, l1 = 0, squares = 0;
    CONVTRACE_UNROLLED
    for (const Group& group : chunk.group) {
      CONVTRACE_UNROLLED
      for (const uint32_t word : group.word) {
        sum = dot<E::kSigned>(word, kOnes, sum);
        if constexpr (E::kSigned) l1 = dot<false>(word ^ signs_of<kSigns>(word, word), kOnes, l1);
        if constexpr (D == DType::kBool) continue;
        if constexpr (sizeof(Bits) == 1) {
          squares = dot<E::kSigned>(word, word, squares);
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
#endif

  int64_t sum_ = 0;
  uint64_t l1_ = 0;  ///< without the 1 by which a negative element's magnitude exceeds ~element
  uint64_t squares_ = 0;
};

}  // namespace convtrace::stats
