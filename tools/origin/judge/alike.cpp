/// @file alike.cpp
/// mismatch: members of a group that called something else at the same number.
///
/// Why it is a fault: the n-th collective of a group is one for all its members, whatever they
/// call. They hang, or write each other's memory.
/// Judged: operation, reduction, root, type, and the number of elements where all members have the
/// same. Once a member has left a call out, or made one too many, all later calls of the group are
/// shifted, and no more is told of it.
/// Cannot tell: a call left out among equal ones; `late` tells that at the end.

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/common/text.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

constexpr size_t kLookAhead = 4;  // calls

using Signature = std::tuple<uint32_t, uint32_t, uint32_t, format::DType, uint64_t>;

uint64_t count_of(const Call& call) {
  switch (call.does) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kReduceScatter:
      return call.sent;
    case Operation::kBroadcast:
      return std::max(call.sent, call.received);
    case Operation::kSend:
      return call.sent;
    case Operation::kRecv:
      return call.received;
    default:
      return 0;  // parts may be of any size
  }
}

Signature signature_of(const Call& call) {
  const bool transfer = is_transfer(call.does);
  return {transfer ? 0 : call.op.value, call.reduction.value,
          has_root(call.does) ? call.peer : format::kNoPeer, call.dtype, count_of(call)};
}

std::string call_text(const Job& job, const Call& call) {
  std::string text = job.text(call.op);
  if (call.reduction) text += " (" + job.text(call.reduction) + ")";
  if (const uint64_t count = count_of(call); count != 0)
    text += " of " + tools::counted(count, std::string(to_string(call.dtype)) + " element");
  if (has_root(call.does)) text += ", root " + std::to_string(call.peer);
  return text;
}

/// The calls of a member in the group from one on.
std::vector<const Call*> calls_from(const RankQueue& queue, const Call& call) {
  std::vector<const Call*> calls;
  uint64_t at = std::max(queue.base, queue.position);
  if (at >= queue.end() || &queue.at(at) != &call) {
    at = queue.base;
    while (at < queue.end() && &queue.at(at) != &call) ++at;
  }
  for (size_t looked = 0; at < queue.end() && calls.size() < kLookAhead && looked < 256;
       ++at, ++looked) {
    const Call& next = queue.at(at);
    if (next.group_number == call.group_number && !is_transfer(next.does)) calls.push_back(&next);
  }
  return calls;
}

/// @return whether all calls of `a` from `skip_a` on are those of `b` from `skip_b` on.
bool follow(const std::vector<const Call*>& a, size_t skip_a, const std::vector<const Call*>& b,
            size_t skip_b) {
  size_t alike = 0;
  for (size_t i = 0; i + skip_a < a.size() && i + skip_b < b.size(); ++i, ++alike)
    if (signature_of(*a[i + skip_a]) != signature_of(*b[i + skip_b])) return false;
  return alike != 0;
}

}  // namespace

bool Alike::judge(const Meeting& meeting) {
  if (is_shifted(meeting.group_number)) return false;
  const Signature first = signature_of(meeting.first());
  const bool alike = std::ranges::all_of(
      meeting.members, [&](const Member& member) { return signature_of(*member.call) == first; });
  if (alike) return true;
  std::map<Signature, std::vector<size_t>> by_signature;
  for (size_t i = 0; i < meeting.members.size(); ++i)
    by_signature[signature_of(*meeting.members[i].call)].push_back(i);
  const auto larger = [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  };
  const auto& most = std::ranges::max_element(by_signature, larger)->second;
  std::vector<size_t> order = most;  // those who agree, then the others
  for (const auto& [signature, members] : by_signature)
    if (&members != &most) order.insert(order.end(), members.begin(), members.end());
  if (2 * most.size() <= meeting.members.size()) order.erase(order.begin() + 1, order.end());
  if (tell(meeting, order)) {
    shifted_.resize(std::max<size_t>(shifted_.size(), meeting.group_number + size_t{1}));
    shifted_[meeting.group_number] = true;
  }
  return false;
}

/// @param order  members that agree, then the others; one alone: no majority.
bool Alike::tell(const Meeting& meeting, const std::vector<size_t>& order) {
  const Member& usual = meeting.members[order.front()];
  const Signature signature = signature_of(*usual.call);
  std::vector<const Member*> others;
  for (const Member& member : meeting.members)
    if (signature_of(*member.call) != signature) others.push_back(&member);
  const bool known = order.size() > 1;
  const Member& other = *others.front();
  Origin origin = origin_at(job_, Kind::kMismatch, meeting, *other.call);
  if (known && others.size() == 1) {
    origin.rank = other.rank;
  } else if (known) {
    for (const Member* member : others) origin.suspects.push_back(member->rank);
  } else {
    origin.suspects = ranks_of(meeting);
  }
  const std::string who = known && others.size() == 1 ? "Rank " + std::to_string(other.rank)
                          : known                     ? "R" + ranks_named(origin.suspects).substr(1)
                                                      : "Rank " + std::to_string(other.rank);
  const std::string there =
      "number " + std::to_string(meeting.number) + " of group " + job_.text(meeting.group->name);
  const bool transfer = is_transfer(meeting.does);
  const auto here = calls_from(*job_.queues[other.queue], *other.call);
  const auto theirs = calls_from(*job_.queues[usual.queue], *usual.call);
  // Calls that agree again behind this one are not shifted, however alike they are.
  const bool shifted = !transfer && !follow(here, 1, theirs, 1);
  const bool short_of = shifted && follow(here, 0, theirs, 1) && !follow(here, 1, theirs, 0);
  const bool one_more =
      shifted && !short_of && here.size() > 1 && follow(here, 1, theirs, 0);
  if (short_of) {
    origin.text = who + " left out " + call_text(job_, *usual.call) + ", " + there +
                  ": its calls are those that others make one number later.";
  } else if (one_more) {
    origin.text = who + " called " + call_text(job_, *other.call) + " at " + there +
                  ", which no other member calls: its later calls come one number late.";
  } else {
    origin.text = who + " called " + call_text(job_, *other.call) + " at " + there + ", where " +
                  (known ? "the other members" : "rank " + std::to_string(usual.rank)) +
                  " called " + call_text(job_, *usual.call) + ".";
  }
  for (const Member* member : {&usual, &other})
    origin.evidence.push_back("rank " + std::to_string(member->rank) + ": " +
                              call_text(job_, *member->call) + ", " +
                              place_text(job_, *member->call));
  if (short_of || one_more)
    origin.evidence.push_back("the order of the " +
                              std::to_string(std::max(here.size(), theirs.size())) +
                              " calls from there on says so; no later call of the group is judged");
  origin.next = "look for a branch of the program around this call that depends on the rank";
  for (const Member& member : meeting.members)
    if (member.rank != origin.rank) origin.ranks.push_back(member.rank);
  const uint64_t bit = told_.tell(std::move(origin), job_.text(meeting.group->name));
  for (const Member* member : others) told_.give(member->queue, bit, nullptr);
  return short_of || one_more;
}

}  // namespace convtrace::origin
