#pragma once
/// @file meeting.h
/// A collective with the calls of all members that were read, in the form that judges take.
///
/// Ownership: borrows calls and values from the queues.

#include <cstdint>
#include <span>
#include <vector>

#include "tools/origin/join/groups.h"
#include "tools/origin/read/rank_queue.h"

namespace convtrace::origin {

struct Member {
  uint32_t queue = 0, rank = 0;
  const Call* call = nullptr;
  std::span<const Value*const> sent{}, received{};  ///< by index

  [[nodiscard]] bool is_root() const { return call->group_rank == call->peer; }
};

struct Meeting {
  const Group* group = nullptr;
  uint32_t group_number = 0;
  uint64_t number = 0;
  Operation does = Operation::kOther;
  Reduction reduces = Reduction::kNone;
  std::vector<Member> members;  ///< by rank in the group; of a transfer the source first
  bool whole = false;           ///< all members of the group are here, or both of a transfer
  bool forced = false;          ///< it was judged though others should have come
  uint32_t step = 0;            ///< the smallest of the calls

  [[nodiscard]] const Call& first() const { return *members.front().call; }
};

/// Collects the values of calls by index.
class MeetingValues {
 public:
  void clear() { pointers_.clear(); }
  /// @param most  members.
  void fill(Meeting& meeting, std::span<const RankQueue* const> queues);

 private:
  std::vector<const Value*> pointers_;
};

}  // namespace convtrace::origin
