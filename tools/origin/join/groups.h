#pragma once
/// @file groups.h
/// The groups of a job, by their names.
///
/// Threads:  one.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "tools/origin/model/call.h"

namespace convtrace::origin {

struct Group {
  format::StringId name, members_text;
  uint32_t size = 0;                 ///< by its first caller
  std::vector<uint32_t> members{};   ///< ranks of the job by rank in the group; empty: not known
  std::vector<uint32_t> expected{};  ///< numbers of the queues of members, where members are known
  std::vector<uint32_t> callers{};   ///< numbers of the queues with calls in it, ascending
  bool odd = false;                  ///< its members do not agree on who they are
  bool any_source = false;           ///< it has receptions from a source that is not known

  /// The number of traces that have a call of each collective of the group.
  [[nodiscard]] size_t given() const { return members.empty() ? callers.size() : expected.size(); }
};

class Groups {
 public:
  /// @param names  of the job. @param rank_numbers  queue of each rank; both borrowed.
  Groups(const format::Definitions& names,
         const std::unordered_map<uint32_t, uint32_t>& rank_numbers)
      : names_(names), rank_numbers_(rank_numbers) {}

  /// @return the number of the group that a call is in. @param queue  the caller's.
  uint32_t number_of(const Call& call, uint32_t queue, uint32_t rank);
  [[nodiscard]] Group& operator[](uint32_t number) { return groups_[number]; }
  [[nodiscard]] const Group& operator[](uint32_t number) const { return groups_[number]; }
  [[nodiscard]] size_t size() const { return groups_.size(); }

 private:
  void take_members(Group& group, const Call& call);

  const format::Definitions& names_;
  const std::unordered_map<uint32_t, uint32_t>& rank_numbers_;
  std::unordered_map<uint32_t, uint32_t> numbers_;  ///< by ids of names
  std::vector<Group> groups_;
};

}  // namespace convtrace::origin
