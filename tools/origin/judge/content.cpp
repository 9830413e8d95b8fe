/// @file content.cpp
/// wrong-content: a tensor arrived with other content than it was sent with.
///
/// Why it is a fault: broadcast, all_gather, gather, scatter, all_to_all and transfers copy bytes.
/// Passed over: tensors of unlike counts or types, which views of one memory may be, and collective
/// calls with several tensors of which it is not known which goes where.

#include <algorithm>
#include <set>

#include "cupti/stats/tile/hash.h"
#include "tools/common/json.h"
#include "tools/common/text.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

/// A tensor that arrived with other content.
struct Wrong {
  size_t source = 0, destination = 0;  ///< members
  const Value* sent = nullptr;         ///< null: several together
  const Value* received = nullptr;
};

bool differs(const Value& sent, const Value& received) {
  return sent.count == received.count && sent.dtype == received.dtype &&
         sent.bytes == received.bytes && sent.hash != received.hash;
}

class Routes {
 public:
  Routes(const Job& job, const Meeting& meeting) : job_(job), meeting_(meeting) {}

  std::vector<Wrong> find() {
    const size_t n = meeting_.members.size();
    switch (meeting_.does) {
      case Operation::kBroadcast:
        for (size_t i = 0; i < n; ++i)
          if (member(i).is_root()) broadcast(i);
        break;
      case Operation::kScatter:
      case Operation::kGather:
        for (size_t i = 0; i < n; ++i)
          if (member(i).is_root()) one_with_all(i);
        break;
      case Operation::kAllGather:
        for (size_t i = 0; i < n; ++i) gathered(i);
        break;
      case Operation::kAllToAll: exchanged(); break;
      case Operation::kSend:
        for (size_t i = 0; i < std::min(member(0).sent.size(), member(1).received.size()); ++i)
          compare(0, i, 1, i);
        break;
      default: break;
    }
    return std::move(wrong_);
  }

 private:
  [[nodiscard]] const Member& member(size_t i) const { return meeting_.members[i]; }

  void compare(size_t from, size_t sent, size_t to, size_t received) {
    const Value &a = *member(from).sent[sent], &b = *member(to).received[received];
    if (differs(a, b)) wrong_.push_back({from, to, &a, &b});
  }

  void broadcast(size_t root) {
    for (size_t to = 0; to < meeting_.members.size(); ++to) {
      const size_t count = member(to).received.size();
      if (to == root || count != member(root).sent.size()) continue;
      for (size_t i = 0; i < count; ++i) compare(root, i, to, i);
    }
  }

  void one_with_all(size_t root) {
    const size_t n = meeting_.members.size();
    const bool scatters = meeting_.does == Operation::kScatter;
    if ((scatters ? member(root).sent : member(root).received).size() != n) return;
    for (size_t i = 0; i < n; ++i) {
      if ((scatters ? member(i).received : member(i).sent).size() != 1) continue;
      if (scatters)
        compare(root, i, i, 0);
      else
        compare(i, 0, root, i);
    }
  }

  void gathered(size_t to) {
    const size_t n = meeting_.members.size(), count = member(to).received.size();
    const auto send = [&](size_t tensors) {
      return std::ranges::all_of(meeting_.members,
                                 [=](const Member& one) { return one.sent.size() == tensors; });
    };
    if (count == n && n > 1 && send(1)) {
      for (size_t from = 0; from < n; ++from) compare(from, 0, to, from);
    } else if (job_.new_hashes && count != 0 && send(count)) {
      for (size_t i = 0; i < count; ++i) concatenated(to, i);
    }
  }

  /// One tensor receives those of all members, one after the other.
  void concatenated(size_t to, size_t place) {
    const Value& received = *member(to).received[place];
    const Value& first = *member(0).sent[place];
    const size_t n = meeting_.members.size();
    if (first.bytes % stats::kHashWordBytes != 0 || received.bytes != n * first.bytes) return;
    for (const Member& one : meeting_.members)
      if (one.sent[place]->bytes != first.bytes || one.sent[place]->dtype != received.dtype) return;
    if (concatenated_at_ != place || !concatenated_known_) {
      concatenated_ = stats::concat_hashes(first.bytes, static_cast<uint32_t>(n),
                                           [&](uint32_t i) { return member(i).sent[place]->hash; });
      concatenated_at_ = place;
      concatenated_known_ = true;
    }
    if (concatenated_ != received.hash) wrong_.push_back({to, to, nullptr, &received});
  }

  void exchanged() {
    const size_t n = meeting_.members.size();
    for (size_t from = 0; from < n; ++from)
      for (size_t to = 0; to < n; ++to)
        if (member(from).sent.size() == n && member(to).received.size() == n)
          compare(from, to, to, from);
  }

  const Job& job_;
  const Meeting& meeting_;
  std::vector<Wrong> wrong_;
  uint64_t concatenated_ = 0;
  size_t concatenated_at_ = 0;
  bool concatenated_known_ = false;
};

/// Sets who it began with, as far as that follows from who has it and who has not.
void blame(const Meeting& meeting, const std::vector<Wrong>& wrong, Origin& origin) {
  std::set<size_t> sources, destinations;
  bool several = false;
  for (const Wrong& one : wrong) {
    sources.insert(one.source);
    destinations.insert(one.destination);
    several |= one.sent == nullptr;
  }
  const auto rank = [&](size_t member) { return meeting.members[member].rank; };
  for (const size_t to : destinations) origin.ranks.push_back(rank(to));
  // With two members it is unknown which one is wrong.
  const size_t receivers = meeting.does == Operation::kBroadcast ? meeting.members.size() - 1
                           : is_transfer(meeting.does)           ? 1
                                                                 : meeting.members.size();
  if (receivers > 1 && destinations.size() == 1 &&
      (several || sources.size() > 1 || meeting.does != Operation::kGather)) {
    origin.rank = rank(*destinations.begin());
  } else if (!several && receivers > 1 && sources.size() == 1 &&
             destinations.size() + 1 >= receivers) {
    origin.rank = rank(*sources.begin());
  } else {
    std::set<uint32_t> suspects;
    if (several) {
      for (const Member& member : meeting.members) suspects.insert(member.rank);
    } else {
      for (const size_t from : sources) suspects.insert(rank(from));
      for (const size_t to : destinations) suspects.insert(rank(to));
    }
    origin.suspects.assign(suspects.begin(), suspects.end());
  }
}

std::string evidence_of(const Meeting& meeting, const Wrong& one) {
  const Member &from = meeting.members[one.source], &to = meeting.members[one.destination];
  const std::string what = "tensor " + std::to_string(one.received->index) + " of " +
                           tools::counted(one.received->count, "element") + " (" +
                           std::string(to_string(one.received->dtype)) + "): ";
  if (one.sent == nullptr)
    return what + "rank " + std::to_string(to.rank) + " received hash " +
           tools::hex_text(one.received->hash) + ", which is not that of what all members sent";
  return what + "rank " + std::to_string(from.rank) + " sent hash " +
         tools::hex_text(one.sent->hash) + ", rank " + std::to_string(to.rank) + " received " +
         tools::hex_text(one.received->hash);
}

/// @return whether a received message equals another one that its source sends to its destination:
/// unrecorded tags may have distinguished the two.
bool is_another(const Job& job, const Meeting& meeting, const Wrong& wrong) {
  if (meeting.first().tag != 0) return false;
  const Member& from = meeting.members[wrong.source];
  const RankQueue& queue = *job.queues[from.queue];
  return std::ranges::any_of(queue.calls, [&](const Call& call) {
    if (&call == from.call || call.does != Operation::kSend || call.peer != from.call->peer ||
        call.group_number != from.call->group_number)
      return false;
    for (uint32_t at = call.first_value; at != kNone; at = queue.values[at].next)
      if (queue.values[at].hash == wrong.received->hash &&
          queue.values[at].count == wrong.received->count)
        return true;
    return false;
  });
}

}  // namespace

uint64_t judge_content(const Job& job, const Meeting& meeting, Told& told) {
  if (!meeting.whole || !job.same_hashes || meeting.members.size() < 2) return 0;
  const std::vector<Wrong> wrong = Routes(job, meeting).find();
  if (wrong.empty()) return 0;
  const Wrong& first = wrong.front();
  if (is_transfer(meeting.does)) {
    if (is_another(job, meeting, first)) told.see_out_of_order(meeting);
    if (told.is_out_of_order(meeting)) {
      told.doubt("messages that came in another order than they were sent (tags are not recorded)");
      return 0;
    }
  }
  const Member& to = meeting.members[first.destination];
  Origin origin = origin_at(job, Kind::kWrongContent, meeting, *to.call);
  blame(meeting, wrong, origin);
  origin.slot = "received:" + std::to_string(first.received->index);
  origin.text = "What " + ranks_named(origin.ranks) + " received from " +
                meeting_text(job, meeting) + " is not what was sent.";
  for (const Wrong& one : wrong) {
    if (origin.evidence.size() == 4) break;
    origin.evidence.push_back(evidence_of(meeting, one));
  }
  origin.evidence.push_back(place_text(job, *to.call));
  origin.next =
      "the buffer was changed while it was sent or received, or the transport is at fault";
  const std::vector<uint32_t> receivers = origin.ranks;
  if (origin.rank) std::erase(origin.ranks, *origin.rank);
  const uint64_t bit =
      told.tell(std::move(origin), job.text(meeting.group->name) + job.text(to.call->op));
  for (const Wrong& one : wrong) {
    if (one.received->bad && (one.sent == nullptr || !one.sent->bad)) told.explains_not_finite(bit);
    told.give(meeting.members[one.destination].queue, bit, nullptr);
  }
  return bit;
}

}  // namespace convtrace::origin
