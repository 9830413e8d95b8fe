#pragma once
/// @file trace_judge.h
/// Makes all findings about a trace: takes events, makes records.
///
/// A live process and a reader of its trace see the same events, so they make the same findings.
///
/// Place:    the writer thread, for events that it writes; `convtrace findings --replay`.
/// Threads:  one.
/// Source:   docs/findings.md.

#include <span>
#include <string>
#include <vector>

#include "format/findings/collectives/flight_judge.h"
#include "format/findings/memory/memory_judge.h"
#include "format/findings/ops/alias_judge.h"
#include "format/findings/ops/op_values.h"
#include "format/findings/ops/overwritten.h"
#include "format/model/definitions.h"

namespace convtrace::judge {

/// A finding as it is recorded, before rules are applied, which only a live process knows.
struct Verdict {
  format::Finding record;  ///< its message is the text below
  std::string message;
  std::string slot{};  ///< the caller interns it, if record.slot is none
  format::StringId
      maker_scope{};  ///< stale-read: module that made the value, if the reader did not
};

class TraceJudge {
 public:
  /// @param definitions  of the trace; outlive this.
  explicit TraceJudge(const format::Definitions& definitions)
      : definitions_(definitions),
        values_(definitions),
        overwritten_(definitions),
        flights_(definitions) {}

  /// @return whether this class makes findings of that kind.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return MemoryJudge::judges(kind) || AliasJudge::judges(kind) || OpValues::judges(kind) ||
           Overwritten::judges(kind) || FlightJudge::judges(kind);
  }

  /// @return the findings that `event` causes, valid until the next call.
  std::span<Verdict> see(const format::Event& event);

 private:
  void add(const auto& finding) {
    verdicts_.push_back({.record = record_of(finding), .message = describe(finding, definitions_)});
  }

  const format::Definitions& definitions_;
  MemoryJudge memory_;
  AliasJudge aliases_;
  OpValues values_;
  Overwritten overwritten_;
  FlightJudge flights_;
  MemoryJudge::Findings memory_findings_;
  AliasJudge::Findings op_findings_;
  FlightJudge::Findings flight_findings_;
  std::vector<Verdict> verdicts_;
};

}  // namespace convtrace::judge
