#pragma once
/// @file rank_queue.h
/// The records of a rank that were read and are not judged yet: its calls of collectives in program
/// order, their values, and bad values and parameters between them.
///
/// Place:    a RankReader appends, the engine takes from the front.
/// Threads:  one at a time.

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tools/origin/model/call.h"
#include "tools/origin/read/pool.h"
#include "tools/trace/model/record.h"

namespace convtrace::origin {

/// The class of a value that is not finite.
enum class BadClass : uint8_t {
  kData,      ///< in the data: may stand for a missing value
  kGradient,  ///< in the backward pass: under a GradScaler, too large a scale
  kOther,
};

/// The first value that is not finite between two calls.
struct LocalBad {
  uint64_t before = 0;  ///< ordinal of the call that it precedes
  uint64_t seq = 0, count = 0, nan = 0, infinite = 0;
  format::StringId scope, op, slot;
  uint32_t step = 0, call = 0;
  format::Phase phase = format::Phase::kForward;
  format::DType dtype = format::DType::kUnknown;
  BadClass kind = BadClass::kOther;
  std::vector<std::string> inputs{};  ///< lines about finite inputs of the same call
};

/// From kLoss on of no parameter: the loss; that a backward pass called a sum over ranks, or the
/// program a broadcast; that DDP holds the model; an input of a step; a sum over ranks; that the
/// program clips gradients.
enum class ParameterMoment : uint8_t {
  kInitial,
  kGradient,
  kUpdate,
  kBuffer,
  kLoss,
  kReduced,
  kShared,
  kWrapped,
  kData,
  kSummed,
  kClipped
};

/// A parameter, its gradient or a buffer in one step, or other evidence that ranks train together.
struct ParameterSeen {
  format::StringId scope{}, name{};
  uint64_t hash = 0;
  uint32_t writes = 0;  ///< to a gradient, as its tensor counts them
  ParameterMoment moment = ParameterMoment::kInitial;
  bool varied = false;    ///< its elements are known not to be one number
  bool constant = false;  ///< they are known to be one
  bool bad = false;
};

struct StepCounts {
  uint64_t measured = 0, bad = 0;
};

struct RankQueue {
  uint32_t rank = 0;
  std::deque<Call> calls;
  uint64_t base = 0;      ///< ordinal of calls.front()
  uint64_t position = 0;  ///< ordinal of the first call that was not passed
  uint64_t joined = 0;    ///< ordinal of the first call that no group knows yet
  Pool<Value> values;
  Pool<Fingerprint> fingerprints;
  std::deque<LocalBad> bads;
  std::map<uint32_t, std::vector<ParameterSeen>> parameters;  ///< by step
  std::map<uint32_t, StepCounts> steps;
  uint32_t read_step = 0;     ///< the largest that was read
  bool finished = false;      ///< the whole trace was read
  bool complete = true;       ///< closed and undamaged, as far as it was read
  bool damaged = false;       ///< something that was written could not be read
  bool closed = true;         ///< it ends as a program ends that was not killed
  bool scaled = false;        ///< a GradScaler has been seen
  bool sees_modules = false;  ///< it has values beside those of collectives
  uint64_t late_values = 0;   ///< values that came after their call was judged
  uint64_t odd_calls = 0;     ///< calls whose ids do not ascend: their values are unknown
  uint64_t errors = 0;        ///< findings of level error, which concern one rank
  uint64_t lost = 0;          ///< records or values that are not in the trace
  bool lost_calls = false;    ///< calls may be among them
  bool cut = false;           ///< others have results of calls that it made after the trace's end
  uint64_t value_count = 0;

  [[nodiscard]] uint64_t end() const { return base + calls.size(); }
  /// @return whether its trace may lack calls: then a missing call is no evidence.
  [[nodiscard]] bool lacks_calls() const { return damaged || lost_calls || cut; }
  [[nodiscard]] Call& at(uint64_t ordinal) { return calls[ordinal - base]; }
  [[nodiscard]] const Call& at(uint64_t ordinal) const { return calls[ordinal - base]; }
  /// @return whether no more values of a call will come.
  [[nodiscard]] bool settled(const Call& call) const {
    return finished || (call.sent_seen >= call.sent && call.received_seen >= call.received) ||
           diff::is_whole(call.step, read_step);
  }
  void drop_values(Call& call) {
    for (uint32_t at = call.first_value; at != kNone;) {
      const Value& value = values[at];
      if (value.fingerprint != kNone) fingerprints.drop(value.fingerprint);
      const uint32_t next = value.next;
      values.drop(at);
      at = next;
    }
    call.first_value = kNone;
  }
};

}  // namespace convtrace::origin
