#pragma once
/// @file live_judge.h
/// The judge beside the trace that is being written: what it finds becomes Finding events, unless a
/// rule has declared it right.
///
/// Place:    the writer thread asks it of each event it has written, so that it sees what a reader
///           of the trace will see, in the same order.
/// Threads:  one.
/// Errors:   after an exception it says nothing any more; the trace goes on.

#include <span>
#include <vector>

#include "format/findings/trace_judge.h"
#include "format/model/definitions.h"
#include "format/settings/rule_book.h"

namespace convtrace::engine {

class LiveJudge {
 public:
  /// Both outlive it.
  LiveJudge(format::Definitions& definitions, settings::RuleBook& rules)
      : definitions_(definitions), rules_(rules), judge_(definitions) {}

  /// @return what `event` shows, valid until the next call.
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
