#include "tools/origin/model/writes.h"

#include <algorithm>

namespace convtrace::origin {

std::vector<Writes::Count> Writes::since_last(uint32_t key, std::span<const Count> counts) {
  std::vector<Count> now(counts.begin(), counts.end());
  std::map<uint32_t, uint32_t>& last = last_[key];
  const auto before = [&last](const Count& one) {
    const auto known = last.find(one.queue);
    return known == last.end() ? 0 : known->second;
  };
  const bool goes_on =
      std::ranges::all_of(counts, [&](const Count& one) { return one.writes > before(one); });
  for (Count& one : now) {
    const uint32_t all = one.writes;
    if (goes_on) one.writes -= before(one);
    last[one.queue] = all;
  }
  return now;
}

void Writes::take(uint32_t key, std::span<const Count> all) {
  const std::vector<Count> counts = since_last(key, all);
  const auto [least, most] = std::ranges::minmax(counts, {}, &Count::writes);
  More more{.writes = most.writes, .others = least.writes};
  for (const Count& one : counts) {
    more.all.push_back(one.queue);
    if (one.writes > more.others) more.queues.push_back(one.queue);
  }
  step_[key] = std::move(more);
}

void Writes::end_step(uint32_t step) {
  const auto alike = static_cast<size_t>(
      std::ranges::count_if(step_, [](const auto& one) { return one.second.queues.empty(); }));
  std::erase_if(keys_, [this](const auto& one) {
    return !one.second.queues.empty() && !step_.contains(one.first);
  });
  for (auto& [key, now] : step_) {
    const auto known = keys_.find(key);
    if (now.queues.empty()) {
      keys_[key] = std::move(now);
    } else if (known != keys_.end()) {
      More& before = known->second;
      const bool goes_on = before.queues == now.queues;
      // If other ranks, or most of them, now write more often, the key is no evidence any more.
      if (!(goes_on || before.queues.empty()) || !now.stands_out() || alike == 0) {
        keys_.erase(known);
        continue;
      }
      now.first = goes_on ? before.first : step;
      now.steps = before.steps + 1;
      now.alike = goes_on ? before.alike : alike;
      before = std::move(now);
    }
  }
  step_.clear();
}

std::map<uint32_t, Writes::More> Writes::found() const {
  std::map<uint32_t, More> found;
  for (const auto& [key, more] : keys_)
    if (more.steps > 1) found.emplace(key, more);
  return found;
}

}  // namespace convtrace::origin
