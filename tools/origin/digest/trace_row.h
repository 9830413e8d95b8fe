#pragma once
/// @file trace_row.h
/// The row of a digest about its trace; rows.h has all others, and defines rows.
///
/// Threads:   plain values.

#include <cstdint>
#include <string>

#include "tools/origin/read/feed.h"

namespace convtrace::origin {

/// A trace that was looked at. Numbers of traces are those of these rows, from 0.
struct TraceRow {
  static constexpr const char* kName = "traces";
  uint32_t given = 0;   ///< number of the argument that it belongs to
  std::string problem;  ///< a line, escaped, why the trace cannot be read; "" if it can
  RankFacts facts;
  uint32_t read_step = 0;
  bool complete = true, damaged = false, closed = true, scaled = false, sees_modules = false;
  bool lost_calls = false;
  uint64_t late_values = 0, odd_calls = 0, lost = 0, value_count = 0;

  template <typename Row, typename Visit>
  static void of_row(Row& row, Visit&& visit) {
    visit("given", row.given);
    visit("path", row.facts.path);
    visit("problem", row.problem);
    visit("rank", row.facts.rank);
    visit("world_size", row.facts.world_size);
    visit("new_hashes", row.facts.new_hashes);
    visit("events", row.facts.events);
    visit("has_steps", row.facts.has_steps);
    visit("first_step", row.facts.first_step);
    visit("last_step", row.facts.last_step);
    visit("read_step", row.read_step);
    visit("complete", row.complete);
    visit("damaged", row.damaged);
    visit("closed", row.closed);
    visit("scaled", row.scaled);
    visit("sees_modules", row.sees_modules);
    visit("lost_calls", row.lost_calls);
    visit("late_values", row.late_values);
    visit("odd_calls", row.odd_calls);
    visit("lost", row.lost);
    visit("value_count", row.value_count);
  }
  template <typename Row, typename Visit>
  static void of_member(Row&, Visit&&) {}
};

}  // namespace convtrace::origin
