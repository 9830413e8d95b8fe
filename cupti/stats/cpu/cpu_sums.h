// Part of cpu_tile_impl.h: sums in f64 of dense elements of 32 and 64 bits (wide_sums.h), a register
// of lanes at a time.
#pragma once

#include <cstring>

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/cpu/simd_sums.h"
#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {
namespace {

/// Accumulators of all threads of a tile, [thread][lane]; values and hashes of a row fall on
/// consecutive lanes, so that kWide lanes are one vector.
template <DType D>
struct TileLanes {
  static constexpr uint32_t kCount = kThreads * kLanes<D>;
  alignas(kVectorBytes) double sum[kCount];
  alignas(kVectorBytes) double l1[kCount];
  alignas(kVectorBytes) double squares[kCount];
  alignas(kVectorBytes) double deviations[kCount];  ///< this and the next are used if `shifted`
  alignas(kVectorBytes) double squared_deviations[kCount];

  /// @param used  lanes, the first ones; no other is looked at.
  TileLanes(bool shifted, uint32_t used) {
    for (uint32_t i = 0; i < used; i += kWide) {
      for (double* const to : {sum, l1, squares}) store(to + i, F64s{});
      if (!shifted) continue;
      for (double* const to : {deviations, squared_deviations}) store(to + i, F64s{});
    }
  }
};

/// Elements of kWide lanes: values and deviations, both +0 where not finite. Adding +0 changes no
/// accumulator, as none of them is ever -0.
struct Elements {
  F64s value;
  F64s deviation;
};

/// Bytes whose elements fall on the same four lanes: a group, or two groups of f64.
template <DType D>
constexpr uint32_t kUnitBytes = sizeof(typename Element<D>::Bits) == 8 ? 2 * kGroupBytes
                                                                       : kGroupBytes;

/// The sum of a tile from its accumulators, [thread][lane], by the trees of tiling.h and
/// combine_lanes(), a vector of threads at a time.
/// @param used  threads, the first ones: the sums of the others are +0, which adds nothing.
template <uint32_t Count>
double combine_all(const double (&values)[Count], uint32_t used = kThreads) {
  constexpr uint32_t kOfThread = Count / kThreads;
  static_assert(kOfThread == 1 || kOfThread == 2 || kOfThread == 4);
  alignas(kVectorBytes) double threads[kThreads] = {};
  for (uint32_t t = 0; t < used; t += kWide) {
    F64s lanes[kOfThread];
    for (uint32_t i = 0; i < kOfThread; ++i)
      lanes[i] = load<F64s>(values + t * kOfThread + i * kWide);
    if constexpr (kOfThread == 1) store(threads + t, lanes[0]);
    if constexpr (kOfThread == 2) store(threads + t, sum_neighbours(lanes[0], lanes[1]));
    if constexpr (kOfThread == 4) {
      store(threads + t, sum_neighbours(sum_second_neighbours(lanes[0], lanes[1]),
                                        sum_second_neighbours(lanes[2], lanes[3])));
    }
  }
  for (uint32_t stride = 16; stride > 0; stride /= 2) {
    if (stride >= used) continue;
    for (double* half : {threads, threads + 32}) {
      if (stride >= kWide) {
        for (uint32_t i = 0; i < stride; i += kWide)
          store(half + i, load<F64s>(half + i) + load<F64s>(half + i + stride));
      } else {
        for (uint32_t i = 0; i < stride; ++i) half[i] += half[i + stride];
      }
    }
  }
  return threads[0] + threads[32];
}

template <DType D, bool AllFinite>
CONVTRACE_INLINE Elements load_floats(const std::byte* at, double shift) {
  using E = Element<D>;
  using Bits = typename E::Bits;
  Elements made;
  I64s finite;
  if constexpr (sizeof(Bits) == 8) {
    const auto bits = load_fours<int64_t>(at, kUnitBytes<D>);
    made.value = as<F64s>(bits);
    finite =
        (bits & static_cast<int64_t>(E::kMagnitudeMask)) <= static_cast<int64_t>(E::kMaxFinite);
  } else {
    const auto bits = load_fours<uint32_t>(at, kUnitBytes<D>);
    made.value = widen(as<F32s>(bits));
    const auto magnitude = as<I32s>(bits & E::kMagnitudeMask);
    finite = widen(magnitude <= static_cast<int32_t>(E::kMaxFinite));
  }
  made.deviation = made.value - shift;
  if constexpr (!AllFinite) {
    made.value = as<F64s>(as<I64s>(made.value) & finite);
    made.deviation = as<F64s>(as<I64s>(made.deviation) & finite);
  }
  return made;
}

/// Values of up to 32 bits and their differences are exact in f64.
template <DType D>
CONVTRACE_INLINE Elements load_integers(const std::byte* at, Shift<D> shift) {
  using E = Element<D>;
  using Bits = typename E::Bits;
  Elements made;
  if constexpr (sizeof(Bits) == 8) {
    const auto bits = load_fours<Bits>(at, kUnitBytes<D>);
    for (uint32_t i = 0; i < kWide; ++i) {
      const auto value = E::value(bits[i]);
      made.value[i] = static_cast<double>(value);
      made.deviation[i] = shift.deviation(value);
    }
    return made;
  } else {
    auto bits = load_fours<int32_t>(at, kUnitBytes<D>);
    if constexpr (D == DType::kU32) bits ^= INT32_MIN;
    made.value = numbers(bits);
    if constexpr (D == DType::kU32) made.value += 2147483648.0;
    made.deviation = made.value - static_cast<double>(shift.value);
    return made;
  }
}

template <DType D, bool AllFinite>
CONVTRACE_INLINE Elements load_elements(const std::byte* at, Shift<D> shift) {
  if constexpr (Element<D>::kFloat) return load_floats<D, AllFinite>(at, shift.value);
  if constexpr (!Element<D>::kFloat) return load_integers<D>(at, shift);
}

/// kWide accumulators of each sum, in registers for the rows of one block.
template <DType D, bool Shifted>
struct LaneSums {
  F64s sum, l1, squares, deviations, squared_deviations;

  CONVTRACE_INLINE void read(const TileLanes<D>& lanes, uint32_t first) {
    sum = load<F64s>(lanes.sum + first);
    l1 = load<F64s>(lanes.l1 + first);
    squares = load<F64s>(lanes.squares + first);
    if constexpr (!Shifted) return;
    deviations = load<F64s>(lanes.deviations + first);
    squared_deviations = load<F64s>(lanes.squared_deviations + first);
  }
  CONVTRACE_INLINE void write(TileLanes<D>& lanes, uint32_t first) const {
    store(lanes.sum + first, sum);
    store(lanes.l1 + first, l1);
    store(lanes.squares + first, squares);
    if constexpr (!Shifted) return;
    store(lanes.deviations + first, deviations);
    store(lanes.squared_deviations + first, squared_deviations);
  }
  CONVTRACE_INLINE void add(const Elements& made) {
    if constexpr (Element<D>::kFloat) {
      sum += made.value;
      l1 += as<F64s>(as<U64s>(made.value) & 0x7FFFFFFFFFFFFFFF);
      if constexpr (Shifted) deviations += made.deviation;
    }
    squares = fma_lanes(made.value, made.value, squares);
    if constexpr (Shifted)
      squared_deviations = fma_lanes(made.deviation, made.deviation, squared_deviations);
  }
};

/// Bytes of a row that two vectors of lanes take.
template <DType D>
constexpr uint32_t kStepBytes = 2 * (kWide / 4) * kUnitBytes<D>;

/// Adds rows. Two vectors of lanes at a time: enough independent additions to hide their latency,
/// few enough for 16 registers.
/// @param bytes  of each row, from its begin, a multiple of kStepBytes.
template <DType D, bool AllFinite, bool Shifted>
void add_rows(const std::byte* data, uint32_t rows, Shift<D> shift, TileLanes<D>& lanes,
              uint32_t bytes = kRowBytes) {
  constexpr uint32_t kUnit = kUnitBytes<D>;
  constexpr uint32_t kFourBytes = 4 * sizeof(typename Element<D>::Bits);
  constexpr uint32_t kUnits = kWide / 4;  // units of one vector
  for (uint32_t unit = 0; unit < bytes / kUnit; unit += 2 * kUnits) {
    LaneSums<D, Shifted> a, b;
    a.read(lanes, unit * 4);
    b.read(lanes, unit * 4 + kWide);
    const std::byte* at = data + unit * kUnit;
    for (uint32_t row = 0; row < rows; ++row, at += kRowBytes) {
      for (uint32_t offset = 0; offset < kUnit; offset += kFourBytes) {
        a.add(load_elements<D, AllFinite>(at + offset, shift));
        b.add(load_elements<D, AllFinite>(at + kUnits * kUnit + offset, shift));
      }
    }
    a.write(lanes, unit * 4);
    b.write(lanes, unit * 4 + kWide);
  }
}

/// Threads whose lanes a tile of so many bytes reaches, rounded up to what combine_all() and
/// add_rows() take at once.
template <DType D>
constexpr uint32_t used_threads(uint64_t bytes) {
  static_assert(kThreads % kWide == 0 && kWide % (kStepBytes<D> / kGroupBytes) == 0);
  constexpr uint32_t kBytes = kWide * kGroupBytes;
  if (bytes >= kRowBytes) return kThreads;
  return (static_cast<uint32_t>(bytes) + kBytes - 1) / kBytes * kWide;
}

/// Adds floats that do not fill a row. Behind them lie NaNs, which add nothing.
template <DType D, bool Shifted>
void add_floats_of_row(const std::byte* data, uint32_t bytes, Shift<D> shift, TileLanes<D>& lanes) {
  alignas(kVectorBytes) std::byte padded[kRowBytes];
  const uint32_t end = (bytes + kStepBytes<D> - 1) / kStepBytes<D> * kStepBytes<D>;
  std::memset(padded + end - kStepBytes<D>, 0xFF, kStepBytes<D>);
  std::memcpy(padded, data, bytes);
  add_rows<D, false, Shifted>(padded, 1, shift, lanes, end);
}

/// Adds `count` integers that do not fill a row, as LaneSums::add() does: their sums are exact.
template <DType D>
void add_integers_of_row(const std::byte* data, uint32_t count, Shift<D> shift,
                         TileLanes<D>& lanes) {
  using E = Element<D>;
  for (uint32_t i = 0; i < count; ++i) {
    const auto value = E::value(load<typename E::Bits>(data + i * sizeof(typename E::Bits)));
    const uint32_t lane = i / kPerGroup<D> * kLanes<D> + i % kLanes<D>;
    const auto x = static_cast<double>(value);
    lanes.squares[lane] = fma(x, x, lanes.squares[lane]);
    if (shift.value == 0) continue;
    const double deviation = shift.deviation(value);
    lanes.squared_deviations[lane] = fma(deviation, deviation, lanes.squared_deviations[lane]);
  }
}

/// Sums the elements of a tile, block by block.
template <DType D>
class TileSums {
 public:
  /// @param bytes  size of the tile.
  TileSums(Shift<D> shift, uint64_t bytes)
      : shift_(shift),
        threads_(used_threads<D>(bytes)),
        lanes_(shift.value != 0, threads_ * kLanes<D>) {}

  /// @param finite  whether all elements are finite.
  void add_block(const std::byte* data, uint32_t bytes, bool finite) {
    const uint32_t rows = bytes / kRowBytes;
    if (shift_.value != 0) {
      add_whole<true>(data, rows, finite);
      add_rest<true>(data + rows * kRowBytes, bytes % kRowBytes);
    } else {
      add_whole<false>(data, rows, finite);
      add_rest<false>(data + rows * kRowBytes, bytes % kRowBytes);
    }
    if constexpr (!Element<D>::kFloat) add_integers(data, bytes);
  }

  void put_into(ThreadTotals& totals) const {
    totals.sum = combine_all(lanes_.sum, threads_);
    totals.l1 = combine_all(lanes_.l1, threads_);
    totals.squares = combine_all(lanes_.squares, threads_);
    const bool shifted = shift_.value != 0;
    totals.deviations = shifted ? combine_all(lanes_.deviations, threads_) : totals.sum;
    totals.squared_deviations =
        shifted ? combine_all(lanes_.squared_deviations, threads_) : totals.squares;
    totals.int_sum = int_sum_;
    totals.int_l1 = int_l1_;
  }

 private:
  using E = Element<D>;
  using Bits = typename E::Bits;

  template <bool Shifted>
  void add_whole(const std::byte* data, uint32_t rows, bool finite) {
    if (rows == 0) return;
    if (finite) return add_rows<D, true, Shifted>(data, rows, shift_, lanes_);
    if constexpr (E::kFloat) add_rows<D, false, Shifted>(data, rows, shift_, lanes_);
  }

  template <bool Shifted>
  void add_rest(const std::byte* data, uint32_t bytes) {
    if (bytes == 0) return;
    if constexpr (E::kFloat) add_floats_of_row<D, Shifted>(data, bytes, shift_, lanes_);
    if constexpr (!E::kFloat) add_integers_of_row<D>(data, bytes / sizeof(Bits), shift_, lanes_);
  }

  void add_integers(const std::byte* data, uint32_t bytes) {
    IntSum sum, l1;  // local: bytes could alias members, and the loop would stay scalar
    for (uint32_t at = 0; at < bytes; at += sizeof(Bits)) {
      const auto bits = load<Bits>(data + at);
      sum.add<E::kWide>(E::value(bits));
      l1.add<E::kWide>(E::magnitude(bits));
    }
    int_sum_.add(sum);
    int_l1_.add(l1);
  }

  Shift<D> shift_;
  uint32_t threads_;
  TileLanes<D> lanes_;
  IntSum int_sum_, int_l1_;
};

}  // namespace
}  // namespace convtrace::stats
