#pragma once
/// @file sketch_index.h
/// Which bucket of a sketch an element adds to, and with which sign: functions of its logical index
/// alone, the same for every type, layout and device.
///
/// Both come from one linear congruential generator mod 2^32, because its state jumps by any number
/// of steps with one multiply-add. Only upper bits are used: the lower ones have short periods.
///
/// Source:   format/FORMAT.md "Sketches", which these functions are; M. Charikar, K. Chen, M.
///           Farach-Colton, "Finding frequent items in data streams" (2002); the generator: W.
///           Press et al., "Numerical Recipes" 7.1.

#include <cstdint>

#include "cupti/stats/tile/arith.h"

namespace convtrace::stats {

/// A trace is made with these; others are for tests of how estimates spread.
struct SketchSeeds {
  uint32_t signs = 0x9E3779B9;
  uint32_t places = 0x7F4A7C15;
};

/// Several steps of the generator at once: state * mul + add.
struct SketchStep {
  uint32_t mul = 1;
  uint32_t add = 0;
};

CONVTRACE_HD constexpr uint32_t advance(uint32_t state, SketchStep step) {
  return state * step.mul + step.add;
}

CONVTRACE_HD constexpr SketchStep sketch_steps(uint64_t count) {
  SketchStep all;
  SketchStep power{1664525, 1013904223};
  for (; count != 0; count /= 2) {
    if (count % 2 != 0) all = {all.mul * power.mul, advance(all.add, power)};
    power = {power.mul * power.mul, advance(power.add, power)};
  }
  return all;
}

inline constexpr uint32_t kSketchPlaces = 8;
inline constexpr uint32_t kPlaceElements = 16;  ///< neighbours at one place, in two buckets
inline constexpr uint32_t kTurnElements = kSketchPlaces * kPlaceElements;  ///< each place once
/// Turns with one rotation, except that odd ones are rotated by half a round more.
inline constexpr uint32_t kSegmentTurns = 4;
inline constexpr uint32_t kTurnStates = kTurnElements / 4;

/// State that all elements of one turn share.
struct SketchTurn {
  uint32_t signs;     ///< state of the generator for the turn's first four elements
  uint32_t rotation;  ///< the place of its first 16 elements, 0..7
};

/// Goes from turn to turn.
class SketchWalk {
 public:
  CONVTRACE_HD constexpr explicit SketchWalk(uint64_t turn, SketchSeeds seeds = {})
      : at_(static_cast<uint32_t>(turn % kSegmentTurns)),
        signs_(advance(seeds.signs, sketch_steps(turn * kTurnStates))),
        places_(advance(seeds.places, sketch_steps(turn / kSegmentTurns))) {}

  [[nodiscard]] CONVTRACE_HD constexpr SketchTurn turn() const {
    return {signs_, (4 * at_ + (places_ >> 29)) % kSketchPlaces};
  }

  template <uint32_t Turns>
  CONVTRACE_HD constexpr void skip() {
    constexpr SketchStep kSigns = sketch_steps(Turns * kTurnStates);
    constexpr SketchStep kPlaces = sketch_steps(Turns < kSegmentTurns ? 1 : Turns / kSegmentTurns);
    static_assert(Turns < kSegmentTurns || Turns % kSegmentTurns == 0);
    signs_ = advance(signs_, kSigns);
    at_ += Turns;
    if (at_ >= kSegmentTurns) places_ = advance(places_, kPlaces);
    at_ %= kSegmentTurns;
  }

 private:
  uint32_t at_;  ///< turn of the segment
  uint32_t signs_;
  uint32_t places_;
};

/// The sign bit of element `e` mod 4 of those that share a state; other bits are 0.
CONVTRACE_HD constexpr uint32_t sketch_sign(uint32_t state, uint32_t e) {
  return (state << e % 4) & 0x80000000;
}

}  // namespace convtrace::stats
