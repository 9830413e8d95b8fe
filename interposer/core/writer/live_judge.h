#pragma once
/// @file live_judge.h
/// Runs the judges while the trace is written. Their findings become Finding events, unless a rule
/// suppresses them.
///
/// Place:    the writer thread passes each event that it has written, so that the judge sees the
///           same events in the same order as a reader of the trace.
/// Threads:  one.
/// Errors:   after an exception it makes no more findings; the trace continues.

#include <span>
#include <vector>

#include "format/findings/trace_judge.h"
#include "format/model/definitions.h"
#include "format/settings/rule_book.h"

namespace convtrace::engine {

class LiveJudge {
 public:
  /// Both outlive this.
  LiveJudge(format::Definitions& definitions, settings::RuleBook& rules)
      : definitions_(definitions), rules_(rules), judge_(definitions) {}

  /// @return the findings that `event` causes, valid until the next call.
  std::span<const format::Finding> see(const format::Event& event);

 private:
  [[nodiscard]] bool suppressed(const judge::Verdict& verdict);
  [[nodiscard]] bool silenced_in(format::StringId scope, const format::Finding& finding);
  [[nodiscard]] bool silenced_kernel(const format::Finding& finding);
  [[nodiscard]] bool silences(const settings::Rule& rule, const format::Finding& finding);

  format::Definitions& definitions_;
  settings::RuleBook& rules_;
  judge::TraceJudge judge_;
  std::vector<format::Finding> records_;
};

}  // namespace convtrace::engine
