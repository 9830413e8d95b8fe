#pragma once
/// @file step_control.h
/// The training step of the process, and whether values of that step are wanted: by
/// CONVTRACE_STEPS, or by what CONVTRACE_OVERHEAD allows.
///
/// Threads:  written by the thread that begins a step, read from any.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "format/base/mutex.h"
#include "format/settings/settings.h"
#include "interposer/core/control/step_budget.h"

namespace convtrace::engine {

/// The steps that the process ran, and the steps that were asked for.
struct StepsSeen {
  bool values = false;  ///< the mode takes values
  std::string asked;    ///< value of CONVTRACE_STEPS, or of the setting that replaces it
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t count = 0;
  bool wanted = false;  ///< values of at least one of the steps were wanted
};

class StepControl {
 public:
  /// @param overhead  CONVTRACE_OVERHEAD as a fraction; 0: not set.
  StepControl(settings::Mode mode, settings::StepSet steps, double overhead = 0) {
    if (overhead > 0) budget_.emplace(overhead);
    want(mode, std::move(steps));
  }

  /// @param spent_ns  what calls of convtrace have taken in this process.
  void open(uint32_t step, uint64_t now_ns = 0, uint64_t spent_ns = 0) {
    const Lock lock(mutex_);
    if (budget_ && values_ && budget_->open(step, now_ns, spent_ns)) {
      steps_ = budget_->steps();
      decided_.store(true);
    }
    step_.store(step, std::memory_order_relaxed);
    if (seen_.count++ == 0) seen_.first = step;
    seen_.last = step;
    judge();
  }
  /// Changes the wanted steps, from the present step on. Steps that are named end the measuring.
  void want(settings::Mode mode, settings::StepSet steps) {
    const Lock lock(mutex_);
    values_ = mode >= settings::Mode::kHash;
    if (!steps.is_all()) budget_.reset();
    steps_ = budget_ && values_ ? budget_->steps() : std::move(steps);
    judge();
  }
  [[nodiscard]] uint32_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool capture() const noexcept { return capture_.load(std::memory_order_relaxed); }
  /// @return whether the steps were decided since the last call.
  [[nodiscard]] bool take_decided() noexcept { return decided_.exchange(false); }
  /// @return the decision, or why there is none; nothing if no overhead was asked for, or the mode takes
  /// no values.
  [[nodiscard]] std::optional<std::string> budget_text() {
    const Lock lock(mutex_);
    return budget_ && values_ ? std::optional(budget_->text()) : std::nullopt;
  }
  [[nodiscard]] StepsSeen seen() {
    const Lock lock(mutex_);
    StepsSeen seen = seen_;
    seen.values = values_;
    seen.asked = steps_.steps_text();
    return seen;
  }

 private:
  void judge() noexcept CONVTRACE_REQUIRES(mutex_) {
    const bool wanted = values_ && steps_.contains(step());
    capture_.store(wanted);
    seen_.wanted = seen_.wanted || (wanted && seen_.count != 0);
  }

  Mutex mutex_;
  bool values_ CONVTRACE_GUARDED_BY(mutex_) = false;
  settings::StepSet steps_ CONVTRACE_GUARDED_BY(mutex_);
  std::optional<StepBudget> budget_ CONVTRACE_GUARDED_BY(mutex_);
  StepsSeen seen_ CONVTRACE_GUARDED_BY(mutex_);
  std::atomic<uint32_t> step_{0};
  std::atomic<bool> capture_{false};
  std::atomic<bool> decided_{false};
};

}  // namespace convtrace::engine
