#pragma once
/// @file rows.h
/// The rows of a digest: the data of a trace that `convtrace origin` needs, as tables.
///
/// A digest is made on a trace's machine (`convtrace origin --digest`), and those of all ranks are
/// judged together (`--digests`). In between a program may merge equal rows: a row has columns that
/// may be the same for several ranks, and a list of members, each with a rank's own columns.
///
/// Columns:   `of_row` and `of_member` call visit(name, field) for each column, in the order of the
///            file. A visitor knows bool, uint8_t, uint16_t, uint32_t, uint64_t, int32_t, float,
///            double, named enumerations, std::string, format::StringId, and Body<T>: several
///            columns as one column of bytes.
/// Threads:   plain values.

#include <string>
#include <tuple>

#include "tools/origin/digest/trace_row.h"
#include "tools/origin/model/digest.h"
#include "tools/origin/read/rank_queue.h"

namespace convtrace::origin {

/// The columns that T's of_body() visits, as one column of bytes.
template <typename T>
struct Body {
  T& of;
};

/// The fields that all other rows share. `at_step` ascends with the rank's program, so rows can be
/// cut by it.
struct Placed {
  uint32_t at_step = 0;
  uint32_t trace = 0;
  uint64_t place =
      0;  ///< for a call and its values, the call's number in the trace; else the row's
};

struct CallRow : Placed {
  static constexpr const char* kName = "calls";
  Call call;

  template <typename Row, typename Visit>
  static void of_row(Row& row, Visit&& visit) {
    visit("at_step", row.at_step);
    visit("in_group", row.call.group);
    visit("number", row.call.number);
    visit("op", row.call.op);
    visit("reduction", row.call.reduction);
    visit("peer", row.call.peer);
    visit("tag", row.call.tag);
    visit("dtype", row.call.dtype);
    visit("sent", row.call.sent);
    visit("received", row.call.received);
    visit("step", row.call.step);
    visit("phase", row.call.phase);
    visit("scope", row.call.scope);
    visit("module_call", row.call.call);
    visit("group_size", row.call.group_size);
    visit("members", row.call.members);
  }
  template <typename Row, typename Visit>
  static void of_member(Row& row, Visit&& visit) {
    visit("trace", row.trace);
    visit("place", row.place);
    visit("group_rank", row.call.group_rank);
    visit("sent_seen", row.call.sent_seen);
    visit("received_seen", row.call.received_seen);
    visit("id", row.call.id);
  }
};

/// A tensor that a collective sent or received.
struct ValueRow : Placed {
  static constexpr const char* kName = "tensors";
  Value value;
  bool has_print = false;
  Fingerprint print;
  uint32_t turn = 0;  ///< among those of the call

  template <typename Row, typename Visit>
  static void of_row(Row& row, Visit&& visit) {
    visit("at_step", row.at_step);
    visit("hash", row.value.hash);
    visit("is_sent", row.value.sent);
    visit("slot_index", row.value.index);
    visit("is_bad", row.value.bad);
    visit("numbers", Body<Row>{row});
  }
  template <typename Row, typename Visit>
  static void of_body(Row& row, Visit&& visit) {
    visit("", row.value.count);
    visit("", row.value.bytes);
    visit("", row.value.shape);
    visit("", row.value.l2);
    visit("", row.value.sum);
    visit("", row.value.l1);
    visit("", row.value.low);
    visit("", row.value.high);
    visit("", row.value.dtype);
    visit("", row.value.measured);
    visit("", row.value.finite);
    visit("", row.value.nan);
    visit("", row.value.constant);
    visit("", row.has_print);
    visit("", row.print.exponent);
    for (auto& bucket : row.print.bucket) visit("", bucket);
  }
  template <typename Row, typename Visit>
  static void of_member(Row& row, Visit&& visit) {
    visit("trace", row.trace);
    visit("place", row.place);
    visit("turn", row.turn);
    visit("seq", row.value.seq);
  }
};

struct ParameterRow : Placed {
  static constexpr const char* kName = "parameters";
  ParameterSeen seen;

  template <typename Row, typename Visit>
  static void of_row(Row& row, Visit&& visit) {
    visit("at_step", row.at_step);
    visit("scope", row.seen.scope);
    visit("name", row.seen.name);
    visit("moment", row.seen.moment);
    visit("hash", row.seen.hash);
    visit("writes", row.seen.writes);
    visit("varied", row.seen.varied);
    visit("constant", row.seen.constant);
    visit("is_bad", row.seen.bad);
  }
  template <typename Row, typename Visit>
  static void of_member(Row& row, Visit&& visit) {
    visit("trace", row.trace);
    visit("place", row.place);
  }
};

struct BadRow : Placed {
  static constexpr const char* kName = "bads";
  LocalBad bad;
  std::string inputs;  ///< a line each

  template <typename Row, typename Visit>
  static void of_row(Row& row, Visit&& visit) {
    visit("at_step", row.at_step);
    visit("before_call", row.bad.before);
    visit("seq", row.bad.seq);
    visit("elements", row.bad.count);
    visit("nan", row.bad.nan);
    visit("infinite", row.bad.infinite);
    visit("scope", row.bad.scope);
    visit("op", row.bad.op);
    visit("slot", row.bad.slot);
    visit("step", row.bad.step);
    visit("module_call", row.bad.call);
    visit("phase", row.bad.phase);
    visit("dtype", row.bad.dtype);
    visit("kind", row.bad.kind);
    visit("inputs", row.inputs);
  }
  template <typename Row, typename Visit>
  static void of_member(Row& row, Visit&& visit) {
    visit("trace", row.trace);
    visit("place", row.place);
  }
};

/// The number of values of a rank in a step.
struct StepRow : Placed {
  static constexpr const char* kName = "steps";
  StepCounts counts;

  template <typename Row, typename Visit>
  static void of_row(Row& row, Visit&& visit) {
    visit("at_step", row.at_step);
    visit("measured", row.counts.measured);
    visit("bad", row.counts.bad);
  }
  template <typename Row, typename Visit>
  static void of_member(Row& row, Visit&& visit) {
    visit("trace", row.trace);
    visit("place", row.place);
  }
};

/// The tables of a digest. Their numbers in the file are their places here.
using DigestRows = std::tuple<TraceRow, CallRow, ValueRow, ParameterRow, BadRow, StepRow>;

}  // namespace convtrace::origin
