#pragma once
/// @file step_control.h
/// Which training step the process is in, and whether values of it are wanted.
///
/// Threads:  set by whoever opens a step, read from any.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "format/settings/settings.h"

namespace convtrace::engine {

class StepControl {
 public:
  StepControl(settings::Mode mode, settings::StepSet steps) { want(mode, std::move(steps)); }

  void open(uint32_t step) noexcept {
    const std::lock_guard lock(mutex_);
    step_.store(step, std::memory_order_relaxed);
    judge();
  }
  /// From now on, the step under way included.
  void want(settings::Mode mode, settings::StepSet steps) noexcept {
    const std::lock_guard lock(mutex_);
    values_ = mode >= settings::Mode::kHash;
    steps_ = std::move(steps);
    judge();
  }
  [[nodiscard]] uint32_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool capture() const noexcept { return capture_.load(std::memory_order_relaxed); }

 private:
  void judge() noexcept { capture_.store(values_ && steps_.contains(step())); }

  std::mutex mutex_;
  bool values_ = false;
  settings::StepSet steps_;
  std::atomic<uint32_t> step_{0};
  std::atomic<bool> capture_{false};
};

}  // namespace convtrace::engine
