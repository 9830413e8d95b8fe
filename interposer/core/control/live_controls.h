#pragma once
/// @file live_controls.h
/// What the user asked for, as it is now: steps, names, rules and how much of a tensor. The file of
/// CONVTRACE_CONFIG may change it while the program runs, and so may the rank that the program says
/// it has.
///
/// Place:    the engine owns one; the writer thread polls it, everybody asks its parts.
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

/// What one look at the file came to.
struct ControlChange {
  bool applied = false;
  std::vector<Notice> lines;  ///< for people
};

class LiveControls {
 public:
  /// @param wanted  as the program began. @param rules  of all ranks.
  /// @param environment  see ConfigWatch. @param definitions, facts  outlive this.
  LiveControls(const settings::Settings& wanted, std::vector<settings::Rule> rules,
               const Rank& rank, std::vector<std::string> environment,
               const format::Definitions& definitions, FactTable& facts);

  /// Those of this rank, and the parts that go by them and by the settings.
  [[nodiscard]] settings::RuleBook& rules() noexcept { return rules_; }
  [[nodiscard]] StepControl& steps() noexcept { return steps_; }
  [[nodiscard]] const StepControl& steps() const noexcept { return steps_; }
  [[nodiscard]] NameFilter& names() noexcept { return names_; }
  [[nodiscard]] CaptureRules& captures() noexcept { return captures_; }
  [[nodiscard]] Rank rank() const noexcept { return rank_.get(); }

  /// Takes over what the file says, if it has changed.
  [[nodiscard]] ControlChange poll(uint64_t now_ns);

  /// A fact of the observer. @return whether the rank is known by it.
  [[nodiscard]] bool learn_rank(std::string_view fact, std::string_view value) noexcept {
    return rank_.learn(fact, value);
  }
  /// To be called when the rank is known. @return whether other rules may apply from now on.
  bool follow_rank();

  /// @return a line for each pattern and rule: what it matched, or what it may have meant.
  [[nodiscard]] std::vector<Notice> report() const;
  /// @return why the trace of this process may be empty.
  [[nodiscard]] std::vector<std::string> reasons_for_nothing(bool has_context);

 private:
  void take_rules_of_rank();
  /// What was wanted decides what can be compared with another trace.
  void tell(const settings::Settings& wanted);

  FactTable& facts_;
  ProcessRank rank_;
  Mutex all_rules_mutex_;
  std::vector<settings::Rule> all_rules_ CONVTRACE_GUARDED_BY(all_rules_mutex_);  ///< of all ranks
  settings::RuleBook rules_;
  StepControl steps_;
  NameFilter names_;
  CaptureRules captures_;
  ConfigWatch config_;
  uint32_t reloads_ = 0;
};

}  // namespace convtrace::engine
