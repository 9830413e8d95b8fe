#include "tools/trace/model/replicas.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {
namespace {

bool agree(const ReplicaSums& a, const ReplicaSums& b) {
  return a.weights == b.weights && a.gradients == b.gradients;
}

/// Calls `take` with the sums of each common step, until it returns false.
template <typename Take>
void for_common_steps(const std::vector<ReplicaSums>& a, const std::vector<ReplicaSums>& b,
                      const Take& take) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (x->step != y->step) {
      ++(x->step < y->step ? x : y);
    } else if (!take(*x++, *y++)) {
      return;
    }
  }
}

}  // namespace

ReplicaSums replica_sums(const StepRecords& step, const format::Definitions& names) {
  const auto text = [&names](format::StringId id) {
    return uint64_t{std::hash<std::string_view>{}(names.text(id))};
  };
  ReplicaSums sums{.step = step.step};
  for (const ValueRecord& r : step.values) {
    const bool weight = r.kind == Role::kParameter && r.key.phase == format::Phase::kOptimizer;
    if (!weight && !is_parameter_gradient(r.kind)) continue;
    (weight ? sums.weights : sums.gradients) +=
        mix_all({text(r.key.scope), text(r.key.slot), r.key.call, r.stats.hash});
  }
  return sums;
}

std::vector<ReplicaParting> ReplicaCheck::add(uint32_t rank, std::vector<ReplicaSums> steps) {
  std::erase_if(steps, [](const ReplicaSums& s) { return s.weights == 0 && s.gradients == 0; });
  for (const Group& group : groups_) {
    bool first = true, replica = false;
    std::vector<ReplicaParting> partings;
    for_common_steps(group.steps, steps, [&](const ReplicaSums& a, const ReplicaSums& b) {
      if (first) replica = agree(a, b);
      first = false;
      if (!replica || agree(a, b)) return replica;
      partings.push_back({.rank = rank,
                          .other = group.rank,
                          .step = a.step,
                          .in_gradients = a.gradients != b.gradients});
      return false;
    });
    if (replica) return partings;
  }
  groups_.push_back({rank, std::move(steps)});
  return {};
}

}  // namespace convtrace::diff
