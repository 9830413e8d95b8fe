#include "tools/origin/join/engine.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tools/trace/model/hash_mix.h"

namespace convtrace::origin {
size_t Engine::KeyHash::operator()(const Key& key) const noexcept {
  return diff::mix_all(
      {uint64_t{key.source} << 32 | key.destination, key.group, key.tag, key.number});
}

Engine::Engine(std::span<RankQueue* const> queues, Groups& groups, Court& court)
    : queues_(queues),
      readable_(queues.begin(), queues.end()),
      groups_(groups),
      court_(court),
      last_numbers_(queues.size()),
      step_(queues.size(), format::kNoStep) {}

void Engine::run(bool last) {
  join_new();
  for (uint32_t i = static_cast<uint32_t>(queues_.size()); i-- > 0;) to_advance_.push_back(i);
  drain();
  while (force(last)) drain();
}

void Engine::join_new() {
  for (uint32_t i = 0; i < queues_.size(); ++i) {
    RankQueue& queue = *queues_[i];
    // All groups are known before a call is joined: who takes part decides who is waited for.
    for (uint64_t at = queue.joined; at < queue.end(); ++at) {
      Call& call = queue.at(at);
      if (call.group) call.group_number = groups_.number_of(call, i, queue.rank);
    }
  }
  for (uint32_t i = 0; i < queues_.size(); ++i)
    for (RankQueue& queue = *queues_[i]; queue.joined < queue.end(); ++queue.joined)
      join(i, queue.joined);
}

bool Engine::joinable(const Call& call, uint32_t queue, Key& key) {
  if (call.group_number == kNone) return false;
  key.group = call.group_number;
  if (is_transfer(call.does)) {
    if (call.peer == format::kNoPeer || groups_[key.group].any_source) return false;
    const bool sends = call.does == Operation::kSend;
    key.source = sends ? call.group_rank : call.peer;
    key.destination = sends ? call.peer : call.group_rank;
    key.tag = call.tag;
  }
  uint64_t& next = last_numbers_[queue].try_emplace(key, 0).first->second;
  if (call.number < next || call.number == UINT64_MAX) {
    ++repeated_;
    return false;
  }
  next = call.number + 1;
  key.number = call.number;
  return true;
}

void Engine::join(uint32_t queue, uint64_t ordinal) {
  Call& call = queues_[queue]->at(ordinal);
  Key key;
  if (!joinable(call, queue, key)) {
    ++alone_;
    return;
  }
  const auto [entry, is_new] = numbers_.try_emplace(key, kNone);
  if (is_new) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<uint32_t>(instances_.size()));
      instances_.emplace_back();
    }
    entry->second = unused_.back();
    unused_.pop_back();
    Instance& instance = instances_[entry->second];
    instance.key = key;
    instance.parts.clear();
    instance.arrived = 0;
    instance.carried = 0;
    instance.open = true;
    instance.queued = instance.told = false;
  }
  call.instance = entry->second;
  instances_[entry->second].parts.push_back({queue, ordinal});
}

size_t Engine::wanted(const Instance& instance) const {
  const Group& group = groups_[instance.key.group];
  if (instance.key.source == kNone) return group.given();
  if (group.members.empty() || group.odd) return 0;
  const auto [source, destination] = std::pair(instance.key.source, instance.key.destination);
  if (source >= group.members.size() || destination >= group.members.size()) return 0;
  const auto is_given = [&](uint32_t member) {
    const uint32_t rank = group.members[member];
    return std::ranges::any_of(group.expected,
                               [&](uint32_t queue) { return queues_[queue]->rank == rank; });
  };
  if (group.expected.size() == group.members.size()) return 2;
  return size_t{is_given(source)} + size_t{is_given(destination)};
}

void Engine::drain() {
  while (true) {
    if (!to_advance_.empty()) {
      const uint32_t queue = to_advance_.back();
      to_advance_.pop_back();
      advance(queue);
    } else if (!ready_.empty()) {
      const uint32_t instance = ready_.top().instance;
      ready_.pop();
      judge(instance, false);
    } else {
      return;
    }
  }
}

void Engine::cross_to(uint32_t number, uint32_t step) {
  std::map<uint32_t, StepCounts>& steps = queues_[number]->steps;
  while (!steps.empty() && steps.begin()->first < step) {
    court_.passed(number, steps.begin()->first);
    steps.erase(steps.begin());
  }
  step_[number] = step;
}

void Engine::pass_locals(uint32_t number, uint64_t ordinal) {
  RankQueue& queue = *queues_[number];
  while (!queue.bads.empty() && queue.bads.front().before <= ordinal) {
    const LocalBad& bad = queue.bads.front();
    if (bad.step != format::kNoStep && bad.step > step_[number] && step_[number] != format::kNoStep)
      cross_to(number, bad.step);
    court_.local(number, bad);
    queue.bads.pop_front();
  }
}

void Engine::advance(uint32_t number) {
  RankQueue& queue = *queues_[number];
  while (queue.position < queue.joined) {
    Call& call = queue.at(queue.position);
    if (call.arrived && !call.done && call.does != Operation::kSend) return;
    if (!call.arrived) {
      if (!queue.settled(call)) return;
      pass_locals(number, queue.position);
      if (step_[number] == format::kNoStep || call.step > step_[number])
        cross_to(number, call.step);
      call.arrived = true;
      if (call.instance == kNone) call.done = true;
      if (!call.done && !arrive(number, call)) return;
    }
    ++queue.position;
    drop_done(number);
  }
  if (!queue.finished || queue.position != queue.end()) return;
  pass_locals(number, UINT64_MAX);
  cross_to(number, format::kNoStep);
}

bool Engine::arrive(uint32_t number, Call& call) {
  const uint32_t instance = call.instance;
  ++instances_[instance].arrived;
  const bool sends = call.does == Operation::kSend;
  if (sends) {
    make_meeting(instances_[instance], false);
    for (const Member& member : meeting_.members)
      if (member.queue == number && member.call == &call)
        court_.send(member, meeting_, instances_[instance].carried);
  }
  check_ready(instance);
  return sends;
}

void Engine::check_ready(uint32_t number) {
  Instance& instance = instances_[number];
  if (instance.queued || instance.arrived < instance.parts.size()) return;
  if (instance.parts.size() < wanted(instance)) return;
  instance.queued = true;
  Ready ready{.step = UINT32_MAX, .rank = UINT32_MAX, .call = 0, .instance = number};
  for (const Part& part : instance.parts) {
    const RankQueue& queue = *queues_[part.queue];
    ready.step = std::min(ready.step, queue.at(part.call).step);
    if (queue.rank < ready.rank) {
      ready.rank = queue.rank;
      ready.call = part.call;
    }
  }
  ready_.push(ready);
}

void Engine::make_meeting(const Instance& instance, bool forced) {
  const Group& group = groups_[instance.key.group];
  meeting_.group = &group;
  meeting_.group_number = instance.key.group;
  meeting_.number = instance.key.number;
  meeting_.forced = forced;
  meeting_.members.clear();
  meeting_.step = UINT32_MAX;
  for (const Part& part : instance.parts) {
    const RankQueue& queue = *queues_[part.queue];
    const Call& call = queue.at(part.call);
    meeting_.members.push_back({.queue = part.queue, .rank = queue.rank, .call = &call});
    meeting_.step = std::min(meeting_.step, call.step);
  }
  const bool transfer = instance.key.source != kNone;
  std::ranges::sort(meeting_.members, {}, [transfer](const Member& member) {
    const bool receives = member.call->does == Operation::kRecv;
    return std::tuple(transfer && receives, member.call->group_rank, member.queue);
  });
  meeting_.does = meeting_.first().does;
  meeting_.reduces = meeting_.first().reduces;
  meeting_.whole = !group.odd && meeting_.members.size() == (transfer ? 2 : group.size);
  for (size_t i = 0; meeting_.whole && !transfer && i < meeting_.members.size(); ++i)
    meeting_.whole = meeting_.members[i].call->group_rank == i;
  if (transfer && meeting_.whole)
    meeting_.whole = meeting_.members[0].call->does == Operation::kSend &&
                     meeting_.members[1].call->does == Operation::kRecv;
  values_.fill(meeting_, readable_);
}

void Engine::judge(uint32_t number, bool forced) {
  if (forced) mark_cut(instances_[number]);
  make_meeting(instances_[number], forced);
  const bool transfer = instances_[number].key.source != kNone;
  ++(transfer ? transfers_ : collectives_);
  joined_ += meeting_.whole ? 1 : 0;
  court_.meet(meeting_, instances_[number].carried);
  Instance& instance = instances_[number];
  for (const Part& part : instance.parts) {
    Call& call = queues_[part.queue]->at(part.call);
    queues_[part.queue]->drop_values(call);
    call.done = true;
    to_advance_.push_back(part.queue);
  }
  for (const Part& part : instance.parts) drop_done(part.queue);
  numbers_.erase(instance.key);
  instance.open = false;
  unused_.push_back(number);
}

void Engine::drop_done(uint32_t number) {
  RankQueue& queue = *queues_[number];
  while (queue.base < queue.position && queue.calls.front().done) {
    queue.drop_values(queue.calls.front());
    queue.calls.pop_front();
    ++queue.base;
  }
}

}  // namespace convtrace::origin
