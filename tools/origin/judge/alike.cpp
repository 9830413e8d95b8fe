/// @file alike.cpp
/// mismatch: members of a group made different calls with the same number.
///
/// Why it is a fault: the n-th calls of a group's members form one collective, whatever they are.
/// The members hang, or write to each other's memory.
/// Judged: operation, reduction, root, type, and the number of elements where it must be the same
/// for all members. Once a member has omitted a call, or made one too many, all later calls of the
/// group are shifted, and are not reported.
/// Cannot tell: a call omitted among equal ones; `late` reports it at the end.

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
/// With the place in the program.
using Placed = std::tuple<Signature, uint32_t, uint32_t, format::Phase>;

uint64_t count_of(const Call& call) {
  switch (call.does) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kReduceScatter: return call.sent;
    case Operation::kBroadcast: return std::max(call.sent, call.received);
    case Operation::kSend: return call.sent;
    case Operation::kRecv:
    case Operation::kAllGather:  // all parts together, however large each is
      return call.received;
    default: return 0;  // parts may be of any size
  }
}

Signature signature_of(const Call& call) {
  const bool transfer = is_transfer(call.does);
  return {transfer ? 0 : call.op.value, call.reduction.value,
          has_root(call.does) ? call.peer : format::kNoPeer, call.dtype, count_of(call)};
}

Placed placed(const Call& call) {
  return {signature_of(call), call.scope.value, call.call, call.phase};
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

/// The calls of a group in a step, in order.
struct Alike::OfGroup {
  uint32_t step = format::kNoStep, size = 0;
  std::vector<Placed> now{}, before{};
  std::vector<uint64_t> stamps_now{}, stamps_before{};  ///< when they were judged
  bool varies = false;  ///< equal calls of its members stand at unlike places
};

Alike::Alike(const Job& job, Told& told) : job_(job), told_(told) {}
Alike::~Alike() = default;

size_t Alike::place_in_step(const Meeting& meeting) {
  if (meeting.group_number >= groups_.size()) groups_.resize(meeting.group_number + size_t{1});
  OfGroup& group = groups_[meeting.group_number];
  group.size = meeting.group->size;
  if (group.step != meeting.step) {
    group.step = meeting.step;
    group.before.swap(group.now);
    group.now.clear();
    group.stamps_before.swap(group.stamps_now);
    group.stamps_now.clear();
  }
  group.stamps_now.push_back(++stamp_);
  group.now.push_back(placed(meeting.first()));
  return group.now.size() - 1;
}

std::vector<size_t> Alike::usual_members(const Meeting& meeting, size_t place) const {
  const OfGroup& own = groups_[meeting.group_number];
  std::vector<size_t> found;
  const auto take = [&](const Placed& usual) {
    for (size_t i = 0; i < meeting.members.size(); ++i)
      if (placed(*meeting.members[i].call) == usual) found.push_back(i);
  };
  if (place < own.before.size()) take(own.before[place]);
  for (size_t i = 0; i < groups_.size() && found.empty(); ++i) {
    const OfGroup& other = groups_[i];
    if (i == meeting.group_number || other.size != own.size || other.step != own.step ||
        place >= other.now.size())
      continue;
    for (size_t m = 0; m < meeting.members.size(); ++m)  // modules of other stages have other names
      if (signature_of(*meeting.members[m].call) == std::get<Signature>(other.now[place]))
        found.push_back(m);
  }
  if (found.size() == meeting.members.size()) found.clear();
  return found;
}

bool Alike::judge(const Meeting& meeting) {
  if (is_shifted(meeting.group_number)) return false;
  if (!is_transfer(meeting.does)) place_ = place_in_step(meeting);
  const Signature first = signature_of(meeting.first());
  const bool alike = std::ranges::all_of(
      meeting.members, [&](const Member& member) { return signature_of(*member.call) == first; });
  if (alike) return is_transfer(meeting.does) || judge_places(meeting);
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
  if (2 * most.size() <= meeting.members.size()) {
    order.erase(order.begin() + 1, order.end());
    const std::vector<size_t> usual =
        is_transfer(meeting.does) ? std::vector<size_t>() : usual_members(meeting, place_);
    const bool tells = !usual.empty() && std::ranges::all_of(usual, [&](size_t member) {
      return signature_of(*meeting.members[member].call) ==
             signature_of(*meeting.members[usual.front()].call);
    });
    if (tells) order = {usual.front(), usual.front()};
  }
  if (tell(meeting, order)) {
    shifted_.resize(std::max<size_t>(shifted_.size(), meeting.group_number + size_t{1}));
    shifted_[meeting.group_number] = true;
  }
  return false;
}

uint64_t Alike::stamp_of(const Call& call) const {
  if (call.group_number >= groups_.size()) return 0;
  const OfGroup& own = groups_[call.group_number];
  const bool begun = own.step == call.step;  // else what it last did is the step before
  const std::vector<Placed>& before = begun ? own.before : own.now;
  const std::vector<uint64_t>& stamps = begun ? own.stamps_before : own.stamps_now;
  const Placed wanted = placed(call);
  const size_t place = begun ? own.now.size() : 0;
  if (place < before.size() && before[place] == wanted) return stamps[place];
  uint64_t found = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] != wanted) continue;
    if (found != 0) return 0;  // several
    found = stamps[i];
  }
  return found;
}

int Alike::usual_order(const Call& a, const Call& b) const {
  const uint64_t first = stamp_of(a), second = stamp_of(b);
  return first == 0 || second == 0 ? 0 : first < second ? -1 : 1;
}

bool Alike::judge_places(const Meeting& meeting) {
  OfGroup& group = groups_[meeting.group_number];
  const Placed first = placed(meeting.first());
  std::vector<size_t> others;
  for (size_t i = 0; i < meeting.members.size(); ++i)
    if (placed(*meeting.members[i].call) != first) others.push_back(i);
  if (others.empty() || group.varies) return true;
  std::vector<size_t> usual = usual_members(meeting, place_);
  if (meeting.members.size() > 2) {  // the majority, else what was there before
    if (2 * others.size() < meeting.members.size()) {
      usual = {0};
    } else if (others.size() + 1 == meeting.members.size()) {
      usual = {1};
      others = {0};
    }
  } else if (usual.size() == 1) {
    others = {1 - usual.front()};
  }
  group.varies = true;
  if (usual.empty() || others.size() != 1 || usual.front() == others.front()) return true;
  const Member &right = meeting.members[usual.front()], &wrong = meeting.members[others.front()];
  const auto theirs = calls_from(*job_.queues[right.queue], *right.call);
  const auto here = calls_from(*job_.queues[wrong.queue], *wrong.call);
  if (theirs.size() < 2 || here.empty()) return true;
  const auto same = [](const Call* a, const Call* b) { return placed(*a) == placed(*b); };
  const bool swapped = here.size() > 1 && same(here[0], theirs[1]) && same(here[1], theirs[0]);
  bool short_of = same(here[0], theirs[1]);
  for (size_t i = 1; i < here.size() && i + 1 < theirs.size(); ++i)
    short_of &= same(here[i], theirs[i + 1]);
  if (!swapped && !short_of) return true;
  if (short_of) {
    shifted_.resize(std::max<size_t>(shifted_.size(), meeting.group_number + size_t{1}));
    shifted_[meeting.group_number] = true;
  } else {
    group.varies = false;
  }
  (void)tell_places(meeting, others.front(), short_of);
  return false;
}

bool Alike::tell_places(const Meeting& meeting, size_t other, bool short_of) {
  const Member& wrong = meeting.members[other];
  const Member& right = meeting.members[other == 0 ? 1 : 0];
  Origin origin = origin_at(job_, Kind::kMismatch, meeting, *wrong.call);
  origin.rank = wrong.rank;
  const std::string there =
      "number " + std::to_string(meeting.number) + " of group " + job_.text(meeting.group->name);
  origin.text = "Rank " + std::to_string(wrong.rank) +
                (short_of ? " left out " + call_text(job_, *right.call) + ", " + there +
                                ": it and its later calls meet those that others make before them."
                          : " called " + call_text(job_, *wrong.call) + ", " + there +
                                ", and the next in another order than the other members: unlike "
                                "tensors are taken for one.");
  for (const Member* member : {&right, &wrong})
    origin.evidence.push_back("rank " + std::to_string(member->rank) + ": " +
                              place_text(job_, *member->call));
  origin.evidence.emplace_back(
      "the places of the calls behind it say so; sizes and types are equal");
  origin.next = "look for a branch of the program around this call that depends on the rank";
  for (const Member& member : meeting.members)
    if (member.rank != wrong.rank) origin.ranks.push_back(member.rank);
  const uint64_t bit = told_.tell(std::move(origin), job_.text(meeting.group->name));
  for (const Member& member : meeting.members) told_.give(member.queue, bit, nullptr);
  return short_of;
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
  // If later calls agree again, they are not shifted, however alike they are.
  const bool shifted = !transfer && !follow(here, 1, theirs, 1);
  const OfGroup* const group = transfer ? nullptr : &groups_[meeting.group_number];
  const bool next_in_order = !transfer && place_ + 1 < group->before.size() &&
                             group->before[place_ + 1] == placed(*other.call) &&
                             group->before[place_] == placed(*usual.call);
  const bool short_of =
      next_in_order || (shifted && follow(here, 0, theirs, 1) && !follow(here, 1, theirs, 0));
  const bool one_more = shifted && !short_of && here.size() > 1 && follow(here, 1, theirs, 0);
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
