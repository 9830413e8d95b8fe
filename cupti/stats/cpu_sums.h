// Part of cpu_tile_impl.h: floating sums of dense elements in the lanes of tiling.h, four at a
// time.
#pragma once

#include "cupti/stats/accumulator.h"
#include "cupti/stats/simd.h"

namespace convtrace::stats {
namespace {

/// Accumulators of all threads of a tile, [thread][lane]; values and hashes of a row fall on
/// consecutive lanes, so that four lanes are one vector.
template <DType D>
struct TileLanes {
  static constexpr uint32_t kCount = kThreads * kLanes<D>;
  alignas(kVectorBytes) double sum[kCount] = {};
  alignas(kVectorBytes) double l1[kCount] = {};
  alignas(kVectorBytes) double squares[kCount] = {};
  alignas(kVectorBytes) double deviations[kCount] = {};
  alignas(kVectorBytes) double squared_deviations[kCount] = {};
};

/// Four consecutive elements: values and deviations, both +0 where not finite. Adding +0 changes no
/// accumulator, as none of them is ever -0.
struct Quad {
  F64x4 value;
  F64x4 deviation;
};

/// The value of four narrow floats, as FloatElement::value gives it.
template <DType D>
CONVTRACE_INLINE F64x4 values_of(U32x4 bits, U32x4 magnitude) {
  using E = Element<D>;
  constexpr uint32_t kSize = sizeof(typename E::Bits);
  if constexpr (kSize == 4) {
    return widen(as<F32x4>(bits));
  } else if constexpr (E::kBias == 127) {
    return widen(as<F32x4>(bits << 16));  // a scale of one
  } else {
    constexpr auto kScaleBits = static_cast<uint32_t>((254 - E::kBias) << 23);
    const U32x4 sign = (bits ^ magnitude) << (32 - 8 * kSize);
    const U32x4 shifted = (magnitude << (23 - E::kMantissa)) | sign;
    return widen(as<F32x4>(shifted) * __builtin_bit_cast(float, kScaleBits));
  }
}

template <DType D, bool AllFinite>
CONVTRACE_INLINE Quad load_floats(const std::byte* at, double shift) {
  using E = Element<D>;
  using Bits = typename E::Bits;
  Quad quad;
  I64x4 finite;
  if constexpr (sizeof(Bits) == 8) {
    const auto bits = load<I64x4>(at);
    quad.value = as<F64x4>(bits);
    finite =
        (bits & static_cast<int64_t>(E::kMagnitudeMask)) <= static_cast<int64_t>(E::kMaxFinite);
  } else {
    const U32x4 bits = load_four<Bits>(at);
    const U32x4 magnitude = bits & E::kMagnitudeMask;
    quad.value = values_of<D>(bits, magnitude);
    finite = widen(as<I32x4>(magnitude) <= static_cast<int32_t>(E::kMaxFinite));
  }
  quad.deviation = quad.value - shift;
  if constexpr (!AllFinite) {
    quad.value = as<F64x4>(as<I64x4>(quad.value) & finite);
    quad.deviation = as<F64x4>(as<I64x4>(quad.deviation) & finite);
  }
  return quad;
}

/// Values of up to 32 bits and their differences are exact in f64.
template <DType D>
CONVTRACE_INLINE Quad load_integers(const std::byte* at, Shift<D> shift) {
  using E = Element<D>;
  using Bits = typename E::Bits;
  Quad quad;
  if constexpr (sizeof(Bits) == 8) {
    for (int i = 0; i < 4; ++i) {
      const auto value = E::value(load<Bits>(at + i * 8));
      quad.value[i] = static_cast<double>(value);
      quad.deviation[i] = shift.deviation(value);
    }
    return quad;
  } else {
    constexpr int kUnused = 32 - 8 * static_cast<int>(sizeof(Bits));
    auto bits = as<I32x4>(load_four<Bits>(at));
    if constexpr (D == DType::kBool) bits = (bits != 0) & 1;
    if constexpr (E::kSigned) bits = as<I32x4>(as<U32x4>(bits) << kUnused) >> kUnused;
    if constexpr (D == DType::kU32) bits ^= INT32_MIN;
    quad.value = numbers(bits);
    if constexpr (D == DType::kU32) quad.value += 2147483648.0;
    quad.deviation = quad.value - static_cast<double>(shift.value);
    return quad;
  }
}

template <DType D, bool AllFinite>
CONVTRACE_INLINE Quad load_quad(const std::byte* at, Shift<D> shift) {
  if constexpr (Element<D>::kFloat) return load_floats<D, AllFinite>(at, shift.value);
  if constexpr (!Element<D>::kFloat) return load_integers<D>(at, shift);
}

/// Four accumulators of each sum, in registers for the rows of one block.
template <DType D>
struct LaneQuad {
  F64x4 sum, l1, squares, deviations, squared_deviations;

  CONVTRACE_INLINE void read(const TileLanes<D>& lanes, uint32_t first) {
    sum = load<F64x4>(lanes.sum + first);
    l1 = load<F64x4>(lanes.l1 + first);
    squares = load<F64x4>(lanes.squares + first);
    deviations = load<F64x4>(lanes.deviations + first);
    squared_deviations = load<F64x4>(lanes.squared_deviations + first);
  }
  CONVTRACE_INLINE void write(TileLanes<D>& lanes, uint32_t first) const {
    store(lanes.sum + first, sum);
    store(lanes.l1 + first, l1);
    store(lanes.squares + first, squares);
    store(lanes.deviations + first, deviations);
    store(lanes.squared_deviations + first, squared_deviations);
  }
  CONVTRACE_INLINE void add(const Quad& quad) {
    if constexpr (Element<D>::kFloat) {
      sum += quad.value;
      l1 += as<F64x4>(as<U64x4>(quad.value) & 0x7FFFFFFFFFFFFFFF);
    }
    squares = fma4(quad.value, quad.value, squares);
    deviations += quad.deviation;
    squared_deviations = fma4(quad.deviation, quad.deviation, squared_deviations);
  }
};

/// Adds whole rows. Two quads of lanes at a time: enough independent additions to hide their
/// latency, few enough for 16 registers.
template <DType D, bool AllFinite>
void add_rows(const std::byte* data, uint32_t rows, Shift<D> shift, TileLanes<D>& lanes) {
  constexpr uint32_t kElementBytes = sizeof(typename Element<D>::Bits);
  // Bytes whose elements fall on the same four lanes: a group, or two groups of f64.
  constexpr uint32_t kUnitBytes = kElementBytes == 8 ? 2 * kGroupBytes : kGroupBytes;
  constexpr uint32_t kQuadBytes = 4 * kElementBytes;
  for (uint32_t unit = 0; unit < kRowBytes / kUnitBytes; unit += 2) {
    LaneQuad<D> a, b;
    a.read(lanes, unit * 4);
    b.read(lanes, unit * 4 + 4);
    const std::byte* at = data + unit * kUnitBytes;
    for (uint32_t row = 0; row < rows; ++row, at += kRowBytes) {
      for (uint32_t offset = 0; offset < kUnitBytes; offset += kQuadBytes) {
        a.add(load_quad<D, AllFinite>(at + offset, shift));
        b.add(load_quad<D, AllFinite>(at + kUnitBytes + offset, shift));
      }
    }
    a.write(lanes, unit * 4);
    b.write(lanes, unit * 4 + 4);
  }
}

/// Adds `count` elements that do not fill a row.
template <DType D>
void add_part_of_row(const std::byte* data, uint32_t count, Shift<D> shift, TileLanes<D>& lanes) {
  using E = Element<D>;
  for (uint32_t i = 0; i < count; ++i) {
    const auto bits = load<typename E::Bits>(data + i * sizeof(typename E::Bits));
    if (!E::finite(bits)) continue;
    const uint32_t lane = i / kPerGroup<D> * kLanes<D> + i % kLanes<D>;
    const auto value = E::value(bits);
    const auto x = static_cast<double>(value);
    const double deviation = shift.deviation(value);
    lanes.sum[lane] += x;
    lanes.l1[lane] += magnitude(x);
    lanes.squares[lane] = fma(x, x, lanes.squares[lane]);
    lanes.deviations[lane] += deviation;
    lanes.squared_deviations[lane] = fma(deviation, deviation, lanes.squared_deviations[lane]);
  }
}

/// Combines one sum of all lanes of all threads.
template <DType D>
double combine_all(const double (&values)[TileLanes<D>::kCount]) {
  double threads[kThreads];
  for (uint32_t t = 0; t < kThreads; ++t) {
    double lanes[kLanes<D>];
    for (uint32_t i = 0; i < kLanes<D>; ++i) lanes[i] = values[t * kLanes<D> + i];
    threads[t] = combine_lanes(lanes);
  }
  combine_threads(threads, [](double a, double b) { return add(a, b); });
  return threads[0];
}

}  // namespace
}  // namespace convtrace::stats
