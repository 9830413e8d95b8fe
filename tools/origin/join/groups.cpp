#include "tools/origin/join/groups.h"

#include <algorithm>

#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {

void Groups::take_members(Group& group, const Call& call) {
  group.members_text = call.members;
  auto members = parse_ranks(names_.text(call.members));
  if (!members || members->size() != group.size) {
    group.odd = true;
    return;
  }
  group.members = std::move(*members);
  for (const uint32_t rank : group.members)
    if (const auto found = rank_numbers_.find(rank); found != rank_numbers_.end())
      group.expected.push_back(found->second);
}

uint32_t Groups::number_of(const Call& call, uint32_t queue, uint32_t rank) {
  const auto [entry, is_new] =
      numbers_.try_emplace(call.group.value, static_cast<uint32_t>(groups_.size()));
  if (is_new) groups_.push_back({.name = call.group, .members_text = {}, .size = call.group_size});
  Group& group = groups_[entry->second];
  if (call.members && !group.members_text) take_members(group, call);
  const bool agrees = call.group_size == group.size && call.group_rank < group.size &&
                      (!call.members || call.members == group.members_text) &&
                      (group.members.empty() || group.members[call.group_rank] == rank);
  group.odd |= !agrees;
  group.any_source |= call.does == Operation::kRecv && call.peer == format::kNoPeer;
  // Queues come in ascending order, again and again.
  if (group.callers.empty() || group.callers.back() != queue) {
    const auto place = std::ranges::lower_bound(group.callers, queue);
    if (place == group.callers.end() || *place != queue) group.callers.insert(place, queue);
  }
  return entry->second;
}

}  // namespace convtrace::origin
