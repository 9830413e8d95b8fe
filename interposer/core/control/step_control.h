#pragma once
/// @file step_control.h
/// The training step of the process, and whether values of that step are wanted.
///
/// Threads:  written by the thread that begins a step, read from any.

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "format/base/mutex.h"
#include "format/settings/settings.h"

namespace convtrace::engine {

/// The steps that the process ran, and the steps that were asked for.
struct StepsSeen {
  bool values = false;  ///< the mode takes values
  std::string asked;    ///< value of CONVTRACE_STEPS
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t count = 0;
  bool wanted = false;  ///< values of at least one of the steps were wanted
};

class StepControl {
 public:
  StepControl(settings::Mode mode, settings::StepSet steps) { want(mode, std::move(steps)); }

  void open(uint32_t step) noexcept {
    const Lock lock(mutex_);
    step_.store(step, std::memory_order_relaxed);
    if (seen_.count++ == 0) seen_.first = step;
    seen_.last = step;
    judge();
  }
  /// Changes the wanted steps, from the present step on.
  void want(settings::Mode mode, settings::StepSet steps) noexcept {
    const Lock lock(mutex_);
    values_ = mode >= settings::Mode::kHash;
    steps_ = std::move(steps);
    judge();
  }
  [[nodiscard]] uint32_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool capture() const noexcept { return capture_.load(std::memory_order_relaxed); }
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
  StepsSeen seen_ CONVTRACE_GUARDED_BY(mutex_);
  std::atomic<uint32_t> step_{0};
  std::atomic<bool> capture_{false};
};

}  // namespace convtrace::engine
