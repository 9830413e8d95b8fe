#pragma once
/// @file live_judge.h
/// The memory judge beside the trace that is being written: what it finds becomes Finding events.
///
/// Place:    the writer thread asks it of each event it has written, so that it sees what a reader
///           of the trace will see, in the same order.
/// Threads:  one.
/// Errors:   after an exception it says nothing any more; the trace goes on.

#include <span>
#include <string>
#include <vector>

#include "format/definitions.h"
#include "format/judge/memory_judge.h"
#include "format/settings/rule_book.h"

namespace convtrace::engine {

class LiveJudge {
 public:
  /// Both outlive it.
  LiveJudge(format::Definitions& definitions, settings::RuleBook& rules)
      : definitions_(definitions), rules_(rules) {}

  /// @return what `event` shows, valid until the next call.
  std::span<const format::Finding> see(const format::Event& event);

 private:
  void make_records();
  [[nodiscard]] bool suppressed(const judge::MemoryFinding& finding);
  [[nodiscard]] bool silenced_in(format::StringId scope);
  [[nodiscard]] bool silenced_kernel(const judge::MemoryFinding& finding);
  [[nodiscard]] bool silences(const settings::Rule& rule);

  format::Definitions& definitions_;
  settings::RuleBook& rules_;
  judge::MemoryJudge judge_;
  judge::MemoryJudge::Findings found_;
  std::vector<std::string> messages_;  ///< of records_
  std::vector<format::Finding> records_;
};

}  // namespace convtrace::engine
