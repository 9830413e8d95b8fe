#include "tools/origin/judge/reductions.h"

#include <algorithm>
#include <functional>

namespace convtrace::origin {

void Reductions::see(const Class& of, uint32_t step) {
  if (of.equal_gradients > of.gradients.size()) last_[of.queues] = {step, sums_of(of)};
}

bool Reductions::have_ended(const Class& of) const {
  const auto before = last_.find(of.queues);
  if (before == last_.end() || of.gradients.empty() || of.equal_gradients != 0) return false;
  return std::ranges::equal(sums_of(of), before->second.sums, std::less<>());
}

void Reductions::describe_end(const Class& of, uint32_t step, const std::string& ranks,
                              const std::string& unlike, Origin& origin) const {
  const Last& before = last_.at(of.queues);
  origin.text = "Gradients are not reduced from step " + std::to_string(step) + " on: those of " +
                ranks + ", which have equal parameters, are not the same, and were until step " +
                std::to_string(before.step) + ".";
  origin.evidence = {"not equal: the gradients of " + unlike,
                     "sums over ranks in a step: " + std::to_string(before.sums.front()) +
                         " before, " + std::to_string(sums_of(of).front()) + " now"};
  origin.next =
      "look for a condition on the step around the reduction, no_sync, or calls of DDP's .module "
      "(what it holds) in place of DDP";
}

std::vector<uint32_t> Reductions::sums_of(const Class& of) const {
  std::vector<uint32_t> counts;
  for (const uint32_t queue : of.queues) {
    const auto count = sums_.find(queue);
    counts.push_back(count == sums_.end() ? 0 : count->second);
  }
  return counts;
}

}  // namespace convtrace::origin
