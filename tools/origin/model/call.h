#pragma once
/// @file call.h
/// The data of a collective's call and its values that are kept until all members have been read.
///
/// Place:     read/rank_reader.h fills them, join/engine.h brings the members together, judge/
///            compares them.
/// Ownership: plain values. Names are ids of the job's table, equal for equal texts of all ranks.
/// Memory:    144 bytes a call, 104 a value, 68 a fingerprint.

#include <array>
#include <cstdint>

#include "format/model/collective.h"
#include "format/model/event_enums.h"
#include "format/model/events.h"
#include "tools/origin/model/operation.h"

namespace convtrace::origin {

inline constexpr uint32_t kNone = 0xFFFFFFFF;

/// A linear image of a tensor: its sketch, or all elements of a small one. Images of one place may
/// be added and subtracted; their norm estimates that of the tensor.
struct Fingerprint {
  int32_t exponent = 0;
  std::array<float, format::Sketch::kBuckets> bucket{};
};
using Image = std::array<double, format::Sketch::kBuckets>;

/// A tensor that a collective sent or received.
struct Value {
  uint64_t hash = 0, count = 0, bytes = 0;
  uint64_t shape = 0;  ///< mix of its extents; 0: not known
  double l2 = 0, sum = 0, l1 = 0, low = 0, high = 0;
  uint64_t seq = 0;
  uint32_t fingerprint = kNone;  ///< index in the rank's pool
  uint32_t next = kNone;         ///< next value of the call, in the rank's pool
  uint16_t index = 0;            ///< "sent:3" has 3
  format::DType dtype = format::DType::kUnknown;
  bool sent = false;
  bool measured = false;  ///< false: only hash, count and bytes hold
  bool bad = false;       ///< it has NaN or infinities that are no mask
  bool finite = false;    ///< all elements are
  bool nan = false;
  bool constant = false;  ///< all elements are one number
};

/// A call by one rank.
struct Call {
  uint64_t number = 0, tag = 0, id = 0;
  uint64_t sent = 0, received = 0;            ///< elements
  uint64_t sent_seen = 0, received_seen = 0;  ///< elements of the values that were read
  uint64_t t_ns = 0;
  format::StringId scope, op, reduction, group, members;
  uint32_t call = 0, step = 0;
  uint32_t group_rank = 0, group_size = 0, peer = format::kNoPeer;
  uint32_t first_value = kNone;
  uint32_t group_number = kNone;  ///< in the table of groups
  uint32_t instance = kNone;      ///< index of the engine's instance that it belongs to
  format::Phase phase = format::Phase::kForward;
  format::DType dtype = format::DType::kUnknown;
  Operation does = Operation::kOther;
  Reduction reduces = Reduction::kNone;
  bool arrived = false;  ///< its rank has reached it
  bool done = false;     ///< it was judged with the calls of the other members
};

}  // namespace convtrace::origin
