#pragma once
/// @file step_budget.h
/// Selects the steps that keep their values for CONVTRACE_OVERHEAD: measures the cost of a step with
/// values, and decides once how many steps go without.
///
/// The first steps are measured in rounds of five: one with values, four without. The measure is the
/// host's time between the beginnings of steps, without any wait. Work that a step with values leaves
/// to a device or to another thread lengthens the next steps, so the two steps after it count as part
/// of its cost, and the last two of a round give the time of a step without values.
///
/// Threads:  one at a time.
/// Source:   medians, since steps differ in length: 1.2533 standard deviations / sqrt(n) is the
///           error of a median, 1.4826 times the median of the absolute deviations is the standard
///           deviation (normal distribution).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/settings/step_set.h"

namespace convtrace::engine {

class StepBudget {
 public:
  /// @param asked  1 is as long as a step without convtrace.
  explicit StepBudget(double asked);

  /// A step begins. @param spent_ns  what calls of convtrace have taken in this process.
  /// @return whether the steps have been decided.
  bool open(uint32_t step, uint64_t now_ns, uint64_t spent_ns);

  [[nodiscard]] const settings::StepSet& steps() const { return steps_; }
  /// @return the decision, or why there is none, for people.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr uint32_t kRound = 5, kRounds = 4, kMostRounds = 20;
  struct Span {
    double ns = 0, spent_ns = 0;
  };
  struct Decision {
    uint32_t every = 0, first = 0;
    double ratio = 0;  ///< a step with values, by one without
    double added = 0;  ///< by values alone, of a step without convtrace
  };

  void note_span(uint32_t step, const Span& span);
  void end_round();
  [[nodiscard]] std::optional<Decision> decide(uint32_t step) const;
  /// @return what calls of convtrace take of a step without values, by one without convtrace. The
  /// frames of module calls, autograd's calls of hooks and reports of allocators are not in it.
  [[nodiscard]] double unavoidable() const;

  const double asked_;
  settings::StepSet steps_;
  std::optional<uint32_t> step_;  ///< the one under way
  Span began_;
  std::array<Span, kRound> round_;
  uint32_t in_round_ = 0;         ///< steps of the present round, without a gap
  std::vector<double> extra_ns_;  ///< time that values added to each round
  std::vector<double> plain_ns_;  ///< steps without values, two of each round
  Span plain_;                    ///< all steps without values that were measured
  double extra_spent_ns_ = 0;     ///< time in convtrace's calls for the values of all rounds
  std::optional<Decision> decision_;
};

}  // namespace convtrace::engine
