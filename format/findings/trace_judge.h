#pragma once
/// @file trace_judge.h
/// All that is judged of a trace: events in, records of findings out.
///
/// A live process and a reader of its trace see the same events, and come to the same findings.
///
/// Place:    the writer thread, on what it writes; `convtrace findings --replay`.
/// Threads:  one.
/// Source:   docs/findings.md.

#include <span>
#include <string>
#include <vector>

#include "format/findings/memory/memory_judge.h"
#include "format/findings/ops/alias_judge.h"
#include "format/findings/ops/op_values.h"
#include "format/model/definitions.h"

namespace convtrace::judge {

/// A finding, as it goes into the trace but for what only a live process knows: rules.
struct Verdict {
  format::Finding record;  ///< its message is the text below
  std::string message;
  std::string slot;              ///< where record.slot is none: to be interned
  format::StringId maker_scope;  ///< stale-read: who made the value, which its reader did not
};

class TraceJudge {
 public:
  /// @param definitions  of the trace; outlive it.
  explicit TraceJudge(const format::Definitions& definitions)
      : definitions_(definitions), values_(definitions) {}

  /// Whether findings of that kind are its own.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return MemoryJudge::judges(kind) || AliasJudge::judges(kind) || OpValues::judges(kind);
  }

  /// @return what `event` shows, valid until the next call.
  std::span<Verdict> see(const format::Event& event);

 private:
  void add(const MemoryFinding& finding);
  void add(const OpFinding& finding);

  const format::Definitions& definitions_;
  MemoryJudge memory_;
  AliasJudge aliases_;
  OpValues values_;
  MemoryJudge::Findings memory_findings_;
  AliasJudge::Findings op_findings_;
  std::vector<Verdict> verdicts_;
};

}  // namespace convtrace::judge
