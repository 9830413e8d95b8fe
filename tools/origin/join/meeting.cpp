#include "tools/origin/join/meeting.h"

#include <algorithm>

namespace convtrace::origin {

void MeetingValues::fill(Meeting& meeting, std::span<const RankQueue* const> queues) {
  pointers_.clear();
  struct Ends {
    size_t begin, sent, end;
  };
  std::vector<Ends> ends;
  ends.reserve(meeting.members.size());
  for (const Member& member : meeting.members) {
    const Pool<Value>& values = queues[member.queue]->values;
    const size_t begin = pointers_.size();
    for (uint32_t at = member.call->first_value; at != kNone; at = values[at].next)
      pointers_.push_back(&values[at]);
    const auto own = std::span(pointers_).subspan(begin);
    if (own.size() > 1)
      std::ranges::sort(own, {},
                        [](const Value* value) { return std::pair(!value->sent, value->index); });
    const auto sent = std::ranges::count_if(own, [](const Value* value) { return value->sent; });
    ends.push_back({begin, begin + static_cast<size_t>(sent), pointers_.size()});
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    const std::span<const Value* const> all(pointers_);
    meeting.members[i].sent = all.subspan(ends[i].begin, ends[i].sent - ends[i].begin);
    meeting.members[i].received = all.subspan(ends[i].sent, ends[i].end - ends[i].sent);
  }
}

}  // namespace convtrace::origin
