#include "tools/origin/judge/pairs.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace convtrace::origin {
namespace {

constexpr size_t kLeastMembers = 6;  ///< whose median change is the common one

/// The statistics of a group up to a step.
struct PairPast {
  double mean = 0;  ///< mean logarithm of the ratio
  uint32_t steps = 0;
  std::optional<PairFound> found{};
};

double ratio_of(const PairStep& step) { return step.own[0] - step.own[1]; }

/// @return the median change of the members' norms since the step before, by step.
std::map<uint32_t, double> common_changes(const std::map<uint32_t, std::vector<PairStep>>& groups) {
  std::map<uint32_t, std::vector<double>> changes;
  for (const auto& [group, steps] : groups)
    for (size_t i = 1; i < steps.size(); ++i)
      for (const size_t member : {size_t{0}, size_t{1}})
        changes[steps[i].step].push_back(steps[i].own[member] - steps[i - 1].own[member]);
  std::map<uint32_t, double> common;
  for (auto& [step, all] : changes) {
    if (all.size() < kLeastMembers) continue;
    const auto middle = all.begin() + static_cast<ptrdiff_t>(all.size() / 2);
    std::ranges::nth_element(all, middle);
    common[step] = *middle;
  }
  return common;
}

/// @return the member whose change explains the ratio's; nullopt if either may.
std::optional<uint32_t> changed(const PairStep& before, const PairStep& now, double off,
                                std::optional<double> common) {
  const double of_all = common.value_or(0);
  const double a = now.own[0] - before.own[0] - of_all, b = now.own[1] - before.own[1] - of_all;
  const double much = common ? 2 : 3;
  if (std::abs(a) > much * std::abs(b) && a * off > 0) return 0;
  if (std::abs(b) > much * std::abs(a) && b * off < 0) return 1;
  return std::nullopt;
}

}  // namespace

std::vector<PairFound> Pairs::find() const {
  struct Entry {
    uint32_t step, group;
    size_t at;
  };
  std::vector<Entry> order;
  for (const auto& [group, steps] : groups_)
    for (size_t i = 0; i < steps.size(); ++i) order.push_back({steps[i].step, group, i});
  std::ranges::sort(order, {}, [](const Entry& e) { return std::pair(e.step, e.group); });
  const std::map<uint32_t, double> common = common_changes(groups_);
  std::map<uint32_t, PairPast> pasts;
  double squares = 0, count = 0;
  std::vector<PairFound> all;
  for (const auto& [number, group, at] : order) {
    const PairStep& step = groups_.at(group)[at];
    PairPast& past = pasts[group];
    const double off = ratio_of(step) - past.mean;
    if (past.steps != 0 && count > 0) {
      const double usual = std::max(kFinest, std::sqrt(squares / count) * (1 + 2 / count));
      if (std::abs(off) > kSigmas * usual && std::abs(off) >= std::log(kLeast)) {
        if (past.found) {  // it has changed before
          ++past.found->steps;
          continue;
        }
        const auto of_all = common.find(number);
        const auto member =
            changed(groups_.at(group)[at - 1], step, off,
                    of_all == common.end() ? std::nullopt : std::optional(of_all->second));
        if (member)
          past.found = {.group = group,
                        .member = *member,
                        .at = at,
                        .log_factor = *member == 0 ? off : -off,
                        .usual = usual,
                        .steps = 1};
        continue;
      }
    }
    if (past.found && past.found->at + 1 == at) past.found.reset();  // it was one batch
    if (past.steps != 0) {
      squares += off * off;
      count += 1;
    }
    past.mean += off / (std::min<uint32_t>(past.steps, 15) + 1);
    ++past.steps;
  }
  for (const auto& [group, past] : pasts) {
    if (!past.found) continue;
    const PairStep& step = groups_.at(group)[past.found->at];
    const bool last = past.found->at + 1 == groups_.at(group).size();
    // In the last step: one factor for all calls.
    if (!last || (step.calls > 1 && step.spread <= std::abs(past.found->log_factor) / 8))
      all.push_back(*past.found);
  }
  return all;
}

}  // namespace convtrace::origin
