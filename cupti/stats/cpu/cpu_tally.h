// Part of cpu_tile_impl.h: counts and extremes of dense elements, a vector at a time.
#pragma once

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {
namespace {

/// Counters in lanes as narrow as the elements. A run is short enough for the narrowest.
constexpr uint32_t kTallyRunBytes = 128 * kVectorBytes;
static_assert(kTallyRunBytes / kVectorBytes <= 255);

template <typename V>
CONVTRACE_INLINE uint32_t sum_of_lanes(V counters) {
  constexpr uint32_t kLaneCount = sizeof(V) / sizeof(counters[0]);
  uint32_t total = 0;
  for (uint32_t i = 0; i < kLaneCount; ++i) total += static_cast<uint32_t>(counters[i]);
  return total;
}

template <DType D>
class VectorTally {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Signed = std::make_signed_t<Bits>;
  using U = Vector<Bits>;
  using S = Vector<Signed>;

  /// Adds one run of dense elements to `tally`. @param bytes  whole vectors, at most
  /// kTallyRunBytes.
  static void add_run(const std::byte* data, uint32_t bytes, Tally<D>& tally) {
    if constexpr (E::kFloat) {
      VectorTally usual;
      if (usual.add_usual_run(data, bytes)) return usual.finish(tally);
      VectorTally any;
      for (uint32_t i = 0; i < bytes; i += kVectorBytes) any.add_any(load<S>(data + i));
      any.finish(tally);
    } else {
      VectorTally integers;
      for (uint32_t i = 0; i < bytes; i += kVectorBytes) integers.add_integers(load<S>(data + i));
      integers.finish(tally);
    }
  }

 private:
  static constexpr auto kSign = static_cast<Signed>(Bits{1} << (sizeof(Bits) * 8 - 1));
  static constexpr auto kMost = static_cast<Signed>(~kSign);

  static S splat(Signed value) { return S{} + value; }

  static bool any_lane(S mask) {
    for (uint32_t i = 0; i < kVectorBytes / sizeof(Bits); ++i) {
      if (mask[i] != 0) return true;
    }
    return false;
  }

  /// A true lane of a mask is -1.
  CONVTRACE_INLINE static void count(U& counter, S mask) { counter -= as<U>(mask); }

  CONVTRACE_INLINE void add_extremes(S low_key, S high_key, U below) {
    min_key_ = low_key < min_key_ ? low_key : min_key_;
    max_key_ = high_key > max_key_ ? high_key : max_key_;
    min_below_ = below < min_below_ ? below : min_below_;
  }

  /// Orders floats: sign and magnitude to two's complement.
  static S key_of_bits(S bits) { return bits ^ ((bits >> (sizeof(Bits) * 8 - 1)) & kMost); }

  /// Adds a run of normal numbers and zeros, whose zeros are counted in a second loop that few runs
  /// need. Extremes are those of the bits, as in RawExtremes. @return false if the run has others:
  /// then it has to be added by add_any().
  bool add_usual_run(const std::byte* data, uint32_t bytes) {
    S least = splat(kMost), most = splat(kSign);
    U unsigned_least = as<U>(splat(-1)), unsigned_most{};
    for (uint32_t i = 0; i < bytes; i += kVectorBytes) {
      const auto s = load<S>(data + i);
      const auto u = as<U>(s);
      least = s < least ? s : least;
      most = s > most ? s : most;
      unsigned_least = u < unsigned_least ? u : unsigned_least;
      unsigned_most = u > unsigned_most ? u : unsigned_most;
      count(signs_, s >> (sizeof(Bits) * 8 - 1));
    }
    const S negative = least < 0, positive = most >= 0;
    min_key_ = negative ? key_of_bits(as<S>(unsigned_most)) : as<S>(unsigned_least);
    max_key_ = positive ? most : key_of_bits(least);
    const U above = unsigned_least | as<U>(~positive);
    const U below = as<U>((least & kMost) | ~negative);
    const U smallest = above < below ? above : below;
    if (any_lane(smallest == 0)) {
      for (uint32_t i = 0; i < bytes; i += kVectorBytes) add_zeros(load<S>(data + i));
    } else {
      min_below_ = smallest - 1;
    }
    constexpr auto kLargest = static_cast<Signed>(E::kMaxFinite);
    return !any_lane((max_key_ >= kLargest) | (min_key_ <= static_cast<Signed>(~kLargest)) |
                     (min_below_ < static_cast<Bits>(E::kMinNormal - 1)));
  }

  CONVTRACE_INLINE void add_zeros(S s) {
    const U below = as<U>(s & kMost) - 1;
    min_below_ = below < min_below_ ? below : min_below_;
    count(pos_zero_, s == 0);
    count(neg_zero_, s == kSign);
  }

  CONVTRACE_INLINE void add_any(S s) {
    constexpr auto kLargest = static_cast<Signed>(E::kMaxFinite);
    constexpr auto kInf = static_cast<Signed>(kLargest + (E::kHasInf ? 1 : 0));
    const S magnitude = s & kMost;
    const S negative = s < 0;
    const S key = s ^ (negative & kMost);
    const S strange = magnitude > kLargest;
    const S nan = magnitude > kInf;
    add_extremes((key & ~strange) | (strange & kMost), (key & ~strange) | (strange & kSign),
                 (as<U>(magnitude) - 1) | as<U>(strange));
    count(signs_, negative & ~nan);
    count(pos_zero_, s == 0);
    count(neg_zero_, s == kSign);
    count(nan_, nan);
    count(pos_inf_, strange & ~nan & ~negative);
    count(neg_inf_, strange & ~nan & negative);
    count(subnormal_, (magnitude != 0) & (magnitude < static_cast<Signed>(E::kMinNormal)));
    count(saturated_, magnitude == kLargest);
  }

  CONVTRACE_INLINE void add_integers(S s) {
    if constexpr (D == DType::kBool) s = (s != 0) & 1;
    if constexpr (E::kSigned) {
      const S negative = s < 0;
      add_extremes(s, s, as<U>(s ^ negative) - as<U>(negative) - 1);
      count(signs_, negative);
      count(saturated_, (s == kSign) | (s == kMost));
    } else {
      add_extremes(s ^ kSign, s ^ kSign, as<U>(s) - 1);
      if constexpr (D != DType::kBool) count(saturated_, (s == 0) | (s == Signed{-1}));
    }
    count(pos_zero_, s == 0);
  }

  /// Lanes of narrow unsigned types hold flipped values, their keys are the values.
  [[nodiscard]] static typename E::Key key_of(Signed lane) {
    constexpr bool kFlipped = !E::kFloat && !E::kSigned && sizeof(Bits) < 4;
    return kFlipped ? static_cast<typename E::Key>(static_cast<Bits>(lane ^ kSign)) : lane;
  }

  void finish(Tally<D>& tally) const {
    for (uint32_t i = 0; i < kVectorBytes / sizeof(Bits); ++i) {
      // No finite element was seen in this lane.
      if (min_key_[i] > max_key_[i]) continue;
      const Bits below = min_below_[i];
      tally.add_extremes(key_of(min_key_[i]), key_of(max_key_[i]),
                         below == static_cast<Bits>(~Bits{0}) ? Tally<D>::kNoneBelow : below);
    }
    TileCounts counts;
    counts.nan = sum_of_lanes(nan_);
    counts.pos_inf = sum_of_lanes(pos_inf_);
    counts.neg_inf = sum_of_lanes(neg_inf_);
    counts.pos_zero = sum_of_lanes(pos_zero_);
    counts.neg_zero = sum_of_lanes(neg_zero_);
    counts.negative = sum_of_lanes(signs_) - counts.neg_zero;
    counts.subnormal = sum_of_lanes(subnormal_);
    counts.saturated = sum_of_lanes(saturated_);
    tally.counts.add(counts);
  }

  S min_key_ = splat(kMost), max_key_ = splat(kSign);
  U min_below_ = as<U>(splat(-1));
  U signs_{}, pos_zero_{}, neg_zero_{}, nan_{}, pos_inf_{}, neg_inf_{}, subnormal_{}, saturated_{};
};

}  // namespace
}  // namespace convtrace::stats
