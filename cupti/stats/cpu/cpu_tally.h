// Part of cpu_tile_impl.h: counts and extremes of dense elements, a vector at a time.
#pragma once

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/cpu/simd_sums.h"
#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {
namespace {

/// Counters in lanes as narrow as the elements. A run is short enough for the narrowest.
constexpr uint32_t kTallyRunBytes = 128 * kVectorBytes;
static_assert(kTallyRunBytes / kVectorBytes <= 255);

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
    if constexpr (D != DType::kBool) {
      if (add_usual_run(data, bytes, tally)) return;
    }
    VectorTally any;
    for (uint32_t i = 0; i < bytes; i += kVectorBytes) any.add_any(load<S>(data + i));
    any.finish(tally);
  }

 private:
  static constexpr auto kSign = static_cast<Signed>(Bits{1} << (sizeof(Bits) * 8 - 1));
  static constexpr auto kMost = static_cast<Signed>(~kSign);

  static S splat(Signed value) { return S{} + value; }

  static constexpr auto kLesser = [](auto a, auto b) { return a < b ? a : b; };
  static constexpr auto kGreater = [](auto a, auto b) { return a > b ? a : b; };

  /// A true lane of a mask is -1.
  CONVTRACE_INLINE static void count(U& counter, S mask) { counter -= as<U>(mask); }

  CONVTRACE_INLINE void add_extremes(S low_key, S high_key, U below) {
    min_key_ = low_key < min_key_ ? low_key : min_key_;
    max_key_ = high_key > max_key_ ? high_key : max_key_;
    min_below_ = below < min_below_ ? below : min_below_;
  }

  /// The extremes of the bits of a run, and how many elements have their sign.
  struct RunExtremes {
    ChunkExtremes<D> extremes;
    uint32_t signs = 0;
  };

  /// Floats need only three running extremes: where all elements have one sign, the smallest magnitude
  /// replaces the fourth. This saves instructions that, on 512-bit registers, only one of two execution
  /// units runs (minima, maxima and shifts).
  static RunExtremes extremes_of_floats(const std::byte* data, uint32_t bytes) {
    S most = splat(kSign);
    U least_magnitude = as<U>(splat(-1)), unsigned_most{}, signs{};
    for (uint32_t i = 0; i < bytes; i += kVectorBytes) {
      const auto s = load<S>(data + i);
      const U u = as<U>(s), magnitude = as<U>(s & kMost);
      least_magnitude = magnitude < least_magnitude ? magnitude : least_magnitude;
      unsigned_most = u > unsigned_most ? u : unsigned_most;
      most = s > most ? s : most;
      count(signs, s < 0);
    }
    const Bits smallest = combine_lanes_of<Bits, kVectorBytes>(least_magnitude, kLesser);
    const Bits negative = combine_lanes_of<Bits, kVectorBytes>(unsigned_most, kGreater);
    const Signed positive = combine_lanes_of<Signed, kVectorBytes>(most, kGreater);
    const auto lowest = E::negative(negative) ? negative : smallest;
    const auto highest =
        positive >= 0 ? positive : static_cast<Signed>(smallest | static_cast<Bits>(kSign));
    return {{E::key(lowest), E::key(static_cast<Bits>(highest)), smallest}, total(signs)};
  }

  static RunExtremes extremes_of_integers(const std::byte* data, uint32_t bytes) {
    S least = splat(kMost), most = splat(kSign);
    U unsigned_least = as<U>(splat(-1)), unsigned_most{}, signs{};
    for (uint32_t i = 0; i < bytes; i += kVectorBytes) {
      const auto s = load<S>(data + i);
      const auto u = as<U>(s);
      unsigned_least = u < unsigned_least ? u : unsigned_least;
      unsigned_most = u > unsigned_most ? u : unsigned_most;
      if constexpr (!E::kSigned) continue;
      least = s < least ? s : least;
      most = s > most ? s : most;
      count(signs, s < 0);
    }
    RawExtremes<D> raw;
    raw.least = combine_lanes_of<Signed, kVectorBytes>(least, kLesser);
    raw.most = combine_lanes_of<Signed, kVectorBytes>(most, kGreater);
    raw.unsigned_least = combine_lanes_of<Bits, kVectorBytes>(unsigned_least, kLesser);
    raw.unsigned_most = combine_lanes_of<Bits, kVectorBytes>(unsigned_most, kGreater);
    return {raw.extremes(), E::kSigned ? total(signs) : 0};
  }

  static RunExtremes extremes_of_run(const std::byte* data, uint32_t bytes) {
    if constexpr (E::kFloat) return extremes_of_floats(data, bytes);
    if constexpr (!E::kFloat) return extremes_of_integers(data, bytes);
  }

  /// Adds a run of integers, or of normal numbers and zeros. Zeros, and integers at a limit, are
  /// counted in a second loop that few runs need.
  /// @return false, and nothing is added, if the run has others: then it has to be added by add_any().
  static bool add_usual_run(const std::byte* data, uint32_t bytes, Tally<D>& tally) {
    const auto [extremes, signs] = extremes_of_run(data, bytes);
    const auto [lowest, highest, smallest] = extremes;
    const bool limits = E::reaches_limits(lowest, highest);
    if (E::kFloat && (limits || (smallest != 0 && smallest < E::kUsual))) return false;
    auto below = static_cast<typename E::Magnitude>(smallest - 1);
    TileCounts counts;
    if (limits || smallest == 0) {
      VectorTally counted;
      for (uint32_t i = 0; i < bytes; i += kVectorBytes) {
        if constexpr (E::kFloat) counted.add_zeros(load<S>(data + i));
        if constexpr (!E::kFloat) counted.add_limits(load<S>(data + i));
      }
      below = counted.least_below();
      if (below < E::kUsual - 1) return false;
      counts.pos_zero = total(counted.pos_zero_);
      if constexpr (E::kFloat) counts.neg_zero = total(counted.neg_zero_);
      if constexpr (!E::kFloat) counts.saturated = total(counted.saturated_);
    }
    counts.negative = signs - counts.neg_zero;
    tally.add_extremes(lowest, highest, below);
    tally.counts.add(counts);
    return true;
  }

  CONVTRACE_INLINE void add_zeros(S s) {
    const U below = as<U>(s & kMost) - 1;
    min_below_ = below < min_below_ ? below : min_below_;
    count(pos_zero_, s == 0);
    count(neg_zero_, s == kSign);
  }

  CONVTRACE_INLINE void add_limits(S s) {
    const U below = (E::kSigned ? as<U>(s < 0 ? -s : s) : as<U>(s)) - 1;
    min_below_ = below < min_below_ ? below : min_below_;
    count(pos_zero_, s == 0);
    count(saturated_, E::kSigned ? (s == kSign) | (s == kMost) : (s == 0) | (s == Signed{-1}));
  }

  CONVTRACE_INLINE void add_any(S s) {
    if constexpr (D == DType::kBool) add_bools((s != 0) & 1);
    if constexpr (E::kFloat) add_floats(s);
  }

  CONVTRACE_INLINE void add_bools(S s) {
    add_extremes(s ^ kSign, s ^ kSign, as<U>(s) - 1);
    count(pos_zero_, s == 0);
  }

  CONVTRACE_INLINE void add_floats(S s) {
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

  /// Lanes of bool hold flipped values, their keys are the values.
  [[nodiscard]] static typename E::Key key_of(Signed lane) {
    return D == DType::kBool ? static_cast<typename E::Key>(static_cast<Bits>(lane ^ kSign)) : lane;
  }

  CONVTRACE_INLINE static uint32_t total(U counters) {
    // Bytes and halves would overflow; neighbours add up in words.
    Vector<uint32_t> words = as<Vector<uint32_t>>(counters);
    if constexpr (sizeof(Bits) == 1) words = (words & 0x00FF00FF) + (words >> 8 & 0x00FF00FF);
    if constexpr (sizeof(Bits) <= 2) words = (words & 0xFFFF) + (words >> 16);
    return combine_lanes_of<uint32_t, kVectorBytes>(words, [](auto a, auto b) { return a + b; });
  }

  [[nodiscard]] typename E::Magnitude least_below() const {
    const Bits below = combine_lanes_of<Bits, kVectorBytes>(min_below_, kLesser);
    return below == static_cast<Bits>(~Bits{0}) ? Tally<D>::kNoneBelow : below;
  }

  void finish(Tally<D>& tally) const {
    // A lane without a finite element has the ends of the order, which change nothing.
    const auto min_key = combine_lanes_of<Signed, kVectorBytes>(min_key_, kLesser);
    const auto max_key = combine_lanes_of<Signed, kVectorBytes>(max_key_, kGreater);
    if (min_key <= max_key) tally.add_extremes(key_of(min_key), key_of(max_key), least_below());
    TileCounts counts;
    counts.nan = total(nan_);
    counts.pos_inf = total(pos_inf_);
    counts.neg_inf = total(neg_inf_);
    counts.pos_zero = total(pos_zero_);
    counts.neg_zero = total(neg_zero_);
    counts.negative = total(signs_) - counts.neg_zero;
    counts.subnormal = total(subnormal_);
    counts.saturated = total(saturated_);
    tally.counts.add(counts);
  }

  S min_key_ = splat(kMost), max_key_ = splat(kSign);
  U min_below_ = as<U>(splat(-1));
  U signs_{}, pos_zero_{}, neg_zero_{}, nan_{}, pos_inf_{}, neg_inf_{}, subnormal_{}, saturated_{};
};

}  // namespace
}  // namespace convtrace::stats
