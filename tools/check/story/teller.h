#pragma once
/// @file teller.h
/// Collects the numbers of each training step, and tells the story when the run has ended.
///
/// Place:    judge.h feeds it beside the checks.
/// Threads:  one.
/// Memory:   a value for each parameter, three numbers for each value of a module, and 100 bytes
///           for each step.

#include <map>
#include <tuple>
#include <vector>

#include "tools/check/model/check.h"
#include "tools/check/model/story.h"

namespace convtrace::check {

/// The data of a step beside its numbers; names are ids of the trace's definitions.
struct StepMarks {
  struct Where {
    format::StringId scope, slot;
    bool known = false;
  };
  uint64_t updated = 0;          ///< hash of the set of updated parameters
  uint64_t data = 0;             ///< its batch; 0: none, or constant
  double rate = 0;               ///< the largest learning rate; 0: not known
  uint32_t divisor = 0;          ///< the divisor of each mean in the loss; 0: unknown
  Where places[kSeriesCount]{};  ///< where a rise of each series shows first, if it does here
};

class StoryTeller {
 public:
  void see(const StepValues& step, const Surroundings& around);
  /// Call once.
  [[nodiscard]] Story tell(const Surroundings& around);

 private:
  /// The size of a module's value in earlier steps, as a logarithm.
  struct Past {
    static constexpr uint32_t kSteps = 3;
    float last[kSteps]{};
    float largest_change = 0;
    uint32_t seen = 0;

    /// Takes the size in a step. @return whether it leaves the range of the past.
    bool rises(float size);
  };
  using Key = std::tuple<format::StringId, format::StringId, uint32_t>;

  void sum_gradients(const StepValues& step, StoryStep& numbers, StepMarks& marks);
  void sum_updates(const StepValues& step, StoryStep& numbers, StepMarks& marks);
  void find_output(const StepValues& step, StepMarks& marks);

  std::map<Parameter, Value> last_;
  std::map<Key, Past> pasts_;
  std::vector<StoryStep> steps_;
  std::vector<StepMarks> marks_;
};

/// @return the notable events of a run, by step. @param marks  of the same steps
[[nodiscard]] std::vector<StoryEvent> events_of(const std::vector<StoryStep>& steps,
                                                const std::vector<StepMarks>& marks,
                                                const format::Definitions& names);

}  // namespace convtrace::check
