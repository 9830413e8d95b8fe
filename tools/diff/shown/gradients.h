#pragma once
/// @file gradients.h
/// Finds a common relation of all parameters' gradients in a step: each is the sum of the other
/// run's and the run's own of an earlier step, or the other run's times one number.
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
  /// Takes the optimizer's gradients of a step. Call it after the search for the step's root.
  void take(const StepRecords& step, bool in_base);

  /// @param matches  of the step whose root is a gradient, a loss or one number that leads to it.
  /// @param behind_loss  the loss agrees.
  /// @return the evidence of differing gradients with a sketch. A parameter's first gradient in the
  /// step counts, since clipping changes it. A factor must also fit the other gradients' norms.
  [[nodiscard]] std::optional<ShownCause> show(const StepRecords& base, const StepRecords& cand,
                                               std::span<const Match> matches,
                                               bool behind_loss) const;

 private:
  struct Gradient {
    uint32_t step = 0;
    format::Sketch sketch;
  };
  struct OfRun {
    uint32_t step = 0;  ///< the last one taken
    std::unordered_map<uint64_t, Gradient>
        last{};  ///< by parameter_key(); no later step is missing
  };
  struct Pair {
    uint64_t parameter = 0;
    const format::Sketch* base = nullptr;
    const format::Sketch* cand = nullptr;
  };

  /// @return the step whose gradients, added to those of the other run, are those of one run. The
  /// optimizer of a part of the model may pass over steps.
  [[nodiscard]] std::optional<uint32_t> added_step(std::span<const Pair> pairs, bool in_base,
                                                   uint32_t step) const;

  std::array<OfRun, 2> last_;  ///< the baseline's first
};

}  // namespace convtrace::diff
