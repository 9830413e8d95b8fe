#include "interposer/core/control/capture_rules.h"

#include <algorithm>

namespace convtrace::engine {
namespace {

using format::Capture;

/// Rules with a kernel belong to the launch gate.
bool is_of_tensors(const settings::Rule& rule) {
  return rule.scope && !rule.kernel && (rule.capture || rule.samples);
}

}  // namespace

Capture CaptureRules::by_mode(Capture asked) const noexcept {
  const settings::Mode mode = mode_.load(std::memory_order_relaxed);
  if (mode == settings::Mode::kHash) return Capture::kHash;
  const bool raise = mode == settings::Mode::kSnapshot && asked == Capture::kStats;
  return raise ? Capture::kSnapshot : asked;
}

bool CaptureRules::may_store() const {
  return store_values_ && (mode_ == settings::Mode::kSnapshot ||
                           std::ranges::any_of(rules_.rules(), [](const settings::Rule* rule) {
                             return is_of_tensors(*rule) && rule->capture == Capture::kSnapshot;
                           }));
}

CaptureRules::Decision CaptureRules::decide(Capture asked, format::StringId scope, uint32_t step) {
  std::optional<Capture> capture;
  std::optional<uint32_t> samples;
  if (!rules_.empty()) {
    for (const settings::Rule* rule : rules_.of_scope(scope.value, definitions_.text(scope))) {
      if (!is_of_tensors(*rule) || !rule->steps.contains(step)) continue;
      const bool says = (!capture && rule->capture) || (!samples && rule->samples);
      if (!capture) capture = rule->capture;
      if (!samples) samples = rule->samples;
      if (says) rules_.used(*rule);
    }
  }
  const Capture decided = capture.value_or(by_mode(asked));
  const bool stores = decided != Capture::kSnapshot || store_values_;
  const bool is_final = capture || mode_.load(std::memory_order_relaxed) == settings::Mode::kHash;
  return {stores ? decided : Capture::kStats, samples.value_or(samples_), is_final};
}

}  // namespace convtrace::engine
