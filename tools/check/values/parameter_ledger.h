#pragma once
/// @file parameter_ledger.h
/// The history of each parameter in a run: its gradients, updates and changes, and the calls of its
/// module.
///
/// Place:    gradient_flow.cpp judges it when the run has ended.
/// Threads:  one.
/// Memory:   two values for each parameter.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/check/model/check.h"

namespace convtrace::check {

/// "group0.3": a tensor of an optimizer that no module owns.
[[nodiscard]] bool is_foreign(std::string_view name);

/// Its public members are read by the checks.
class ParameterLedger {
 public:
  struct Known {
    Value last{};      ///< the last record
    Value gradient{};  ///< the last one that was not zero
    bool frozen = false, initial = false, seen = false;
    bool consumed = false;  ///< a module that a gradient passes takes its module's output
    uint32_t steps_called = 0, steps_passed = 0;
    uint32_t steps_of_loss = 0;  ///< in which a loss brought its module a gradient of its output
    uint32_t last_update = 0;    ///< a step
    uint32_t updates = 0;        ///< records after an optimizer's step
    uint32_t motions = 0;        ///< updates that changed it
    uint32_t gradients = 0;      ///< gradients that were not zero
    uint32_t zeros = 0;          ///< gradients that were zero
    uint32_t pushes = 0;         ///< updates that should have changed it
    uint32_t writes = 0;         ///< records of other bits that the program wrote itself
    uint64_t written = 0;        ///< the hash of the last of these
    double rate = 0;
    double largest = 0;       ///< largest magnitude in its gradients
    double share = 0;         ///< largest ratio of its gradient to the step's largest
    bool overflowed = false;  ///< its second moment may be infinite (infinite_moment.cpp)
  };
  using Entry = std::pair<const Parameter, Known>;
  /// Consecutive training steps, until the last, in which optimizers updated nothing that computed.
  struct Others {
    std::vector<Parameter> parameters{};  ///< the parameters of the last update
    uint32_t steps = 0, since = 0;
  };

  void see(const StepValues& step, const Surroundings& around);
  /// @return the root module of a module: the longest of all roots that contains it.
  [[nodiscard]] format::StringId root_of(const Surroundings& around, format::StringId scope) const;

  std::map<Parameter, Known> parameters;
  Others others;
  uint32_t steps = 0, first_step = format::kNoStep;  ///< training steps
  bool any_updates = false, any_gradient = false, any_initial = false;

 private:
  [[nodiscard]] static bool is_of_loss(const StepValues& step, const Value& gradient);
  void each_of(format::StringId scope, const std::function<void(Known&)>& act);
  void forget_unused(format::StringId scope);
  void forget_replaced(const StepValues& step, const Surroundings& around);
  void note_parameters(const StepValues& step, const Surroundings& around);
  void note_others(const StepValues& step, const Surroundings& around,
                   const std::set<format::StringId>& called);
  void follow(Known& known, const ParameterStep& now, uint32_t step, double rate,
              const Facts& facts);
  void note_shares(const StepValues& step);
  void note_writes(const StepValues& step);

  std::set<format::StringId> roots_;
  std::map<format::StringId, std::string> classes_;  ///< classes by module
};

}  // namespace convtrace::check
