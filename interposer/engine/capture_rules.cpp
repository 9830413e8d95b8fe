#include "interposer/engine/capture_rules.h"

#include <algorithm>
#include <mutex>

namespace convtrace::engine {

using format::Capture;

CaptureRules::CaptureRules(settings::Mode mode, std::span<const settings::Rule> rules,
                           const format::Definitions& definitions, bool store_values)
    : mode_(mode), store_values_(store_values), definitions_(definitions) {
  for (const settings::Rule& rule : rules) {
    if (rule.scope && !rule.kernel && rule.capture) rules_.push_back(&rule);
  }
}

Capture CaptureRules::by_mode(Capture asked) const noexcept {
  if (mode_ == settings::Mode::kHash) return Capture::kHash;
  const bool raise = mode_ == settings::Mode::kSnapshot && asked == Capture::kStats;
  return raise ? Capture::kSnapshot : asked;
}

bool CaptureRules::may_store() const noexcept {
  return store_values_ && (mode_ == settings::Mode::kSnapshot ||
                           std::ranges::any_of(rules_, [](const settings::Rule* rule) {
                             return rule->capture == Capture::kSnapshot;
                           }));
}

CaptureRules::Matching CaptureRules::matching(format::StringId scope) {
  {
    const std::shared_lock lock(mutex_);
    if (scope.value < known_.size() && known_[scope.value].first) {
      return known_[scope.value].second;
    }
  }
  Matching found;
  const std::string_view name = definitions_.text(scope);
  std::ranges::copy_if(rules_, std::back_inserter(found),
                       [name](const settings::Rule* rule) { return rule->scope->matches(name); });
  const std::unique_lock lock(mutex_);
  if (scope.value >= known_.size()) known_.resize(scope.value + size_t{1});
  known_[scope.value] = {true, found};
  return found;
}

Capture CaptureRules::decide(Capture asked, format::StringId scope, uint32_t step) {
  Capture capture = by_mode(asked);
  if (!rules_.empty()) {
    for (const settings::Rule* rule : matching(scope)) {
      if (!rule->steps.contains(step)) continue;
      capture = *rule->capture;
      break;
    }
  }
  return capture == Capture::kSnapshot && !store_values_ ? Capture::kStats : capture;
}

}  // namespace convtrace::engine
