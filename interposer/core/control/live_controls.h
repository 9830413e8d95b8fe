#pragma once
/// @file live_controls.h
/// The settings in effect now: steps, names, rules and how much of a tensor is recorded. They
/// change when the file of CONVTRACE_CONFIG changes, and when the program reports its rank.
///
/// Place:    owned by the engine; the writer thread polls it, all other parts read from it.
/// Threads:  poll() from one; all else from any.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/base/mutex.h"
#include "format/model/definitions.h"
#include "format/settings/match_report.h"
#include "format/settings/rule_book.h"
#include "format/settings/settings.h"
#include "interposer/core/control/capture_rules.h"
#include "interposer/core/control/config_watch.h"
#include "interposer/core/control/name_filter.h"
#include "interposer/core/control/process_rank.h"
#include "interposer/core/control/step_control.h"
#include "interposer/core/runtime/fact_table.h"

namespace convtrace::engine {

/// The result of one check of the file.
struct ControlChange {
  bool applied = false;
  std::vector<Notice> lines;  ///< to be logged
};

class LiveControls {
 public:
  /// @param wanted  the settings at the start. @param rules  of all ranks.
  /// @param environment  see ConfigWatch. @param definitions, facts  outlive this.
  LiveControls(const settings::Settings& wanted, std::vector<settings::Rule> rules,
               const Rank& rank, std::vector<std::string> environment,
               const format::Definitions& definitions, FactTable& facts);

  /// The rules of this rank, and the parts that depend on them and on the settings.
  [[nodiscard]] settings::RuleBook& rules() noexcept { return rules_; }
  [[nodiscard]] StepControl& steps() noexcept { return steps_; }
  [[nodiscard]] const StepControl& steps() const noexcept { return steps_; }
  [[nodiscard]] NameFilter& names() noexcept { return names_; }
  [[nodiscard]] CaptureRules& captures() noexcept { return captures_; }
  [[nodiscard]] Rank rank() const noexcept { return rank_.get(); }

  /// Applies the file if it has changed, and records steps that have been decided.
  [[nodiscard]] ControlChange poll(uint64_t now_ns);

  /// Takes a fact of the observer. @return whether it completes the rank.
  [[nodiscard]] bool learn_rank(std::string_view fact, std::string_view value) noexcept {
    return rank_.learn(fact, value);
  }
  /// Call when the rank has become known. @return whether other rules may apply from now on.
  bool follow_rank();

  /// Records the wanted steps as facts, and what CONVTRACE_OVERHEAD led to.
  void tell_steps();
  /// @return a line for each pattern and rule, with what it matched or the nearest names.
  [[nodiscard]] std::vector<Notice> report() const;
  /// @return why the trace of this process may be empty.
  [[nodiscard]] std::vector<std::string> reasons_for_nothing(bool has_context);

 private:
  void take_rules_of_rank();
  /// Records the settings in effect as facts; they decide whether two traces can be compared.
  void tell(const settings::Settings& wanted);

  FactTable& facts_;
  ProcessRank rank_;
  Mutex all_rules_mutex_;
  /// Rules for all ranks; those of this rank are in rules_.
  std::vector<settings::Rule> all_rules_ CONVTRACE_GUARDED_BY(all_rules_mutex_);
  settings::RuleBook rules_;
  StepControl steps_;
  NameFilter names_;
  CaptureRules captures_;
  ConfigWatch config_;
  uint32_t reloads_ = 0;
};

}  // namespace convtrace::engine
