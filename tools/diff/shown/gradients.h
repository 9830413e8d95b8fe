#pragma once
/// @file gradients.h
/// What the gradients of all parameters of a step show together: they are those of the other run and
/// of the step before, or those of the other run times one number.
///
/// Place:    rank_diff.h, one of each rank.
/// Memory:   a sketch for each parameter of each run.
/// Threads:  not thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

#include "tools/diff/align/align.h"
#include "tools/diff/compare/factor.h"
#include "tools/diff/shown/shown_cause.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

class Gradients {
 public:
  /// Notes what an optimizer got in a step. Call it once its root was looked for.
  void take(const StepRecords& step, bool in_base);

  /// @param matches  of the step whose root is a gradient, a loss or one number that leads to it.
  /// @param behind_loss  the loss agrees.
  /// @return what the gradients show that differ and have a sketch, the first of a parameter in the
  /// step: behind a clipping it is another one. A factor is that of the other gradients' norms, too.
  [[nodiscard]] std::optional<ShownCause> show(const StepRecords& base, const StepRecords& cand,
                                               std::span<const Match> matches,
                                               bool behind_loss) const;

 private:
  struct OfRun {
    uint32_t step = 0;
    std::unordered_map<uint64_t, format::Sketch> sketches;  ///< by parameter_key()
  };
  struct Pair {
    uint64_t parameter = 0;
    const format::Sketch* base = nullptr;
    const format::Sketch* cand = nullptr;
  };

  /// The gradients of one run are those of the other and its own of the step before.
  [[nodiscard]] bool adds_up(std::span<const Pair> pairs, bool in_base, uint32_t step) const;

  std::array<OfRun, 2> last_;  ///< the baseline's first
};

}  // namespace convtrace::diff
