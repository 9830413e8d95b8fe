#pragma once
/// @file moves.h
/// The change of the pieces of parameters from step to step.
///
/// Place:    whole_values.h, one of each run.
/// Memory:   the sketch and the hash of each parameter of a rank.
/// Threads:  not thread-safe.

#include <cstdint>
#include <span>
#include <unordered_map>

#include "tools/diff/whole/held.h"

namespace convtrace::diff {

/// Least expected norm of an update of a piece, by the roundoff of its norm, from which it cannot
/// leave all bits unchanged. A sketch gives the norm of the others' updates within a factor of 2.
inline constexpr double kLeastMove = 16;

class Moves {
 public:
  /// Records the gradient that the optimizers of ranks get.
  void take_gradient(std::span<const Held> pieces);
  /// Records a parameter.
  /// @param record  of the whole: gets `moved`, and `held_back` with `odd` if one rank has not
  /// updated its piece.
  void take(std::span<const Held> pieces, ValueRecord& record);

 private:
  struct Piece {
    format::Sketch sketch;
    uint64_t hash = 0;
    double gradient = 0;  ///< its norm in this step
  };
  Piece& of(const Held& held);

  std::unordered_map<uint64_t, Piece> pieces_;  ///< by rank and parameter
};

}  // namespace convtrace::diff
