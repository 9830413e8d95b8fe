/// @file hold.cpp
/// The part of the engine for a state in which no rank can go on: it forces one collective, and
/// reports the waiting ranks.

#include <algorithm>
#include <utility>

#include "tools/origin/join/engine.h"

namespace convtrace::origin {
namespace {

/// A queue that is further behind than this does not wait for events that are still to be read.
constexpr uint32_t kMostStepsBehind = 4;
/// A trace is not trusted: its members may never come.
constexpr size_t kMostCallsBehind = 1 << 17;

/// @return whether a member that leaves the operation proves that all others entered it.
bool needs_all(Operation op) {
  return op == Operation::kBarrier || op == Operation::kAllReduce || op == Operation::kAllGather ||
         op == Operation::kReduceScatter || op == Operation::kAllToAll;
}

}  // namespace

bool Engine::all_others_passed(const Instance& instance) const {
  const Group& group = groups_[instance.key.group];
  Key key = instance.key;
  key.number = 0;
  const std::vector<uint32_t>& members = group.members.empty() ? group.callers : group.expected;
  return instance.key.source == kNone && std::ranges::all_of(members, [&](uint32_t queue) {
           if (std::ranges::find(instance.parts, queue, &Part::queue) != instance.parts.end())
             return true;
           const auto last = last_numbers_[queue].find(key);
           return last != last_numbers_[queue].end() && last->second > instance.key.number;
         });
}

std::vector<uint32_t> Engine::missing_of(const Instance& instance) const {
  const Group& group = groups_[instance.key.group];
  const bool transfer = instance.key.source != kNone;
  std::vector<uint32_t> here, missing;
  for (const Part& part : instance.parts) here.push_back(part.queue);
  std::ranges::sort(here);
  for (const uint32_t queue : group.members.empty() ? group.callers : group.expected)
    if (!std::ranges::binary_search(here, queue) && (!transfer || is_expected(instance, queue)))
      missing.push_back(queue);
  return missing;
}

/// @return whether a rank has left a call. Barriers have no results, and the results of other calls
/// may not be recorded: then the rank's later calls and steps show it.
bool Engine::has_left(const Part& part) const {
  const RankQueue& queue = *queues_[part.queue];
  const Call& call = queue.at(part.call);
  if (call.received_seen != 0) return true;
  if (!needs_all(call.does)) return false;
  if (call.does == Operation::kBarrier)
    return queue.read_step > call.step || part.call + 1 < queue.end();
  return queue.read_step > uint64_t{call.step} + 1;
}

void Engine::mark_cut(const Instance& instance) {
  const Group& group = groups_[instance.key.group];
  if (group.odd || instance.parts.size() >= wanted(instance)) return;
  if (std::ranges::none_of(instance.parts, [&](const Part& part) { return has_left(part); }))
    return;
  const Part& one = instance.parts.front();
  const Call& call = queues_[one.queue]->at(one.call);
  // The result of a broadcast proves that its root sent it, not that other members took theirs.
  const bool from_root = call.does == Operation::kBroadcast || call.does == Operation::kScatter;
  for (const uint32_t queue : missing_of(instance)) {
    const bool root = from_root && call.peer < group.members.size() &&
                      group.members[call.peer] == queues_[queue]->rank;
    if (queues_[queue]->finished && (!from_root || root)) queues_[queue]->cut = true;
  }
}

Engine::Hold Engine::hold_of(const Instance& instance) const {
  const bool whole = instance.parts.size() >= wanted(instance);
  if (whole) return Hold::kCircle;
  const bool all_here = instance.arrived == instance.parts.size();
  if (all_others_passed(instance)) return all_here ? Hold::kLost : Hold::kCircle;
  if (!all_here) return Hold::kMissing;
  const bool ended = std::ranges::all_of(missing_of(instance), [&](uint32_t number) {
    const RankQueue& queue = *queues_[number];
    return queue.finished && (queue.position == queue.end() || queue.lacks_calls());
  });
  return ended ? Hold::kEnded : Hold::kMissing;
}

bool Engine::is_behind(const Instance& instance) const {
  return std::ranges::all_of(instance.parts, [&](const Part& part) {
    const RankQueue& queue = *queues_[part.queue];
    return queue.read_step > uint64_t{queue.at(part.call).step} + kMostStepsBehind;
  });
}

bool Engine::force(bool last) {
  std::vector<Ready> waiting;
  std::vector<Hold> holds;
  bool full = false, ended = false;
  for (const RankQueue* queue : queues_) {
    if (queue->position >= queue->joined) continue;
    const Call& call = queue->at(queue->position);
    if (!call.arrived || call.done || call.instance == kNone) continue;
    waiting.push_back({call.step, queue->rank, queue->position, call.instance});
    holds.push_back(hold_of(instances_[call.instance]));
    full |= queue->end() - queue->position > kMostCallsBehind;
    ended |= holds.back() == Hold::kEnded;
  }
  if (waiting.empty()) return false;
  if (last && !std::exchange(looked_for_cuts_, true))
    for (const Instance& instance : instances_)
      if (instance.open) mark_cut(instance);
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const bool behind =
        holds[i] == Hold::kLost ||
        (holds[i] == Hold::kEnded && is_behind(instances_[waiting[i].instance])) ||
        // It may wait only for a rank that itself waits for a trace that has ended.
        (holds[i] == Hold::kCircle && !ended && is_behind(instances_[waiting[i].instance]));
    if (!last && !full && !behind) continue;
    if (least == SIZE_MAX ||
        std::pair(holds[i], waiting[i]) < std::pair(holds[least], waiting[least]))
      least = i;
  }
  if (least == SIZE_MAX) return false;
  const Ready chosen = waiting[least];
  if (last && holds[least] == Hold::kCircle) {
    tell_waiting({chosen});
  } else if (last && holds[least] != Hold::kLost) {
    std::vector<Ready> told;
    for (size_t i = 0; i < waiting.size(); ++i)
      if (holds[i] == Hold::kEnded || holds[i] == Hold::kMissing) told.push_back(waiting[i]);
    tell_waiting(std::move(told));
  }
  judge(chosen.instance, true);
  return true;
}

bool Engine::is_expected(const Instance& instance, uint32_t queue) const {
  const Group& group = groups_[instance.key.group];
  if (std::ranges::find(instance.parts, queue, &Part::queue) != instance.parts.end()) return false;
  if (instance.key.source == kNone)
    return std::ranges::binary_search(group.callers, queue) ||
           std::ranges::find(group.expected, queue) != group.expected.end();
  return !group.members.empty() && instance.key.source < group.members.size() &&
         queues_[queue]->rank == group.members[instance.key.source];
}

/// Finds missing members that wait elsewhere for a member that is here: neither can go on.
void Engine::find_elsewhere(const Instance& instance, Waiting& waiting) const {
  std::unordered_map<uint32_t, std::vector<uint32_t>> places;  // where the missing are
  for (const uint32_t queue : waiting.missing) {
    const RankQueue& other = *queues_[queue];
    if (other.position >= other.joined) continue;
    const Call& head = other.at(other.position);
    if (head.instance == kNone || !head.arrived) continue;
    const bool mutual = std::ranges::any_of(instance.parts, [&](const Part& part) {
      return is_expected(instances_[head.instance], part.queue);
    });
    if (mutual) places[head.instance].push_back(queue);
  }
  for (const auto& [place, queues] : places) {
    const bool better = queues.size() > waiting.elsewhere.size() ||
                        (queues.size() == waiting.elsewhere.size() && queues < waiting.elsewhere);
    if (!better) continue;
    waiting.elsewhere = queues;
    waiting.held.clear();
    for (const Part& part : instance.parts)
      if (is_expected(instances_[place], part.queue)) waiting.held.push_back(part.queue);
    const RankQueue& one = *queues_[queues.front()];
    waiting.other = &one.at(one.position);
  }
}

Waiting Engine::waiting_at(const Instance& instance) {
  make_meeting(instance, true);
  Waiting one{.meeting = &meeting_};
  one.circle = instance.parts.size() >= wanted(instance);
  one.missing = missing_of(instance);
  for (const uint32_t queue : one.missing)
    if (queues_[queue]->position == queues_[queue]->end()) one.absent.push_back(queue);
  if (one.absent.empty()) find_elsewhere(instance, one);
  return one;
}

void Engine::tell_waiting(std::vector<Ready> waiting) {
  std::ranges::sort(waiting);
  uint32_t knot = kNone;  // where two wait for each other, the one with the fewest
  size_t fewest = SIZE_MAX;
  for (const Ready& blocked : waiting) {
    const Instance& instance = instances_[blocked.instance];
    if (instance.told) continue;
    instances_[blocked.instance].told = true;
    const bool whole = instance.parts.size() >= wanted(instance);
    if (!whole && all_others_passed(instance)) continue;
    const Waiting one = waiting_at(instance);
    if (one.other == nullptr) {
      court_.waits(one);
    } else if (std::min(one.elsewhere.size(), one.held.size()) < fewest) {
      fewest = std::min(one.elsewhere.size(), one.held.size());
      knot = blocked.instance;
    }
  }
  if (knot != kNone && !std::exchange(told_knot_, true)) court_.waits(waiting_at(instances_[knot]));
}

}  // namespace convtrace::origin
