#pragma once
/// @file state.h
/// The process-wide state of tracing, and the rule that repeated failures turn it off.
///
/// Place:    every entry from foreign code reads it first (guarded.h).
/// Threads:  any; one relaxed load on the hot path.
/// Errors:   none. Turning off prints one line once, and the host continues.

#include <atomic>
#include <cstdint>

namespace convtrace::engine {

enum class EngineState : uint8_t {
  kOff,       ///< tracing was not started
  kArming,    ///< one thread is starting it
  kActive,    ///< events are recorded
  kDraining,  ///< the process ends: queued events are still written
  kDisabled,  ///< off for the rest of the process
};

/// Kinds of failures that are counted. Five in a row of one kind disable tracing.
enum class FailureKind : uint8_t { kException, kMalformedBatch, kStatistics };
inline constexpr uint32_t kMaxConsecutiveFailures = 5;

class State {
 public:
  constexpr State() = default;

  [[nodiscard]] EngineState get() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool active() const noexcept {
    return state_.load(std::memory_order_relaxed) == EngineState::kActive;
  }
  /// The reason why it is disabled, in static storage; "" if it is not.
  [[nodiscard]] const char* reason() const noexcept {
    return reason_.load(std::memory_order_acquire);
  }

  /// kOff -> kArming. @return true for the one caller who starts tracing.
  bool begin_arming() noexcept;
  /// kArming -> kActive.
  void activate() noexcept;
  /// kActive -> kDraining. @return whether it was active.
  bool begin_draining() noexcept;
  /// -> kDisabled, without a message. @param reason  in static storage.
  void disable(const char* reason) noexcept;

  /// Counts a failure. The fifth in a row of its kind disables tracing with one line.
  /// @param site  where it happened, in static storage.
  void failed(FailureKind kind, const char* site) noexcept;
  void succeeded(FailureKind kind) noexcept {
    auto& count = failures_[static_cast<size_t>(kind)];
    if (count.load(std::memory_order_relaxed) != 0) count.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kKinds = 3;
  std::atomic<EngineState> state_{EngineState::kOff};
  std::atomic<const char*> reason_{""};
  std::atomic<uint32_t> failures_[kKinds]{};
};

/// The state of this process. Constant-initialised and never destroyed, since hooks may run before
/// and after everything else.
State& process_state() noexcept;

}  // namespace convtrace::engine
