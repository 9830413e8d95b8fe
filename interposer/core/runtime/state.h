#pragma once
/// @file state.h
/// The one process-wide answer to "do we trace?", and the rule that failing means turning off.
///
/// Place:    read first by every entry from foreign code (guarded.h).
/// Threads:  any; one relaxed load on the hot path.
/// Errors:   none. Turning off prints one line, once, and lets the host go on.

#include <atomic>
#include <cstdint>

namespace convtrace::engine {

enum class EngineState : uint8_t {
  kOff,       ///< nobody asked yet
  kArming,    ///< being set up by one thread
  kActive,    ///< events are taken
  kDraining,  ///< the process ends: what is queued is still written
  kDisabled,  ///< over, for good
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
  /// Why it is disabled, static storage; "" otherwise.
  [[nodiscard]] const char* reason() const noexcept {
    return reason_.load(std::memory_order_acquire);
  }

  /// kOff -> kArming. @return whether the caller is the one who arms.
  bool begin_arming() noexcept;
  /// kArming -> kActive.
  void activate() noexcept;
  /// kActive -> kDraining. @return whether there is anything to drain.
  bool begin_draining() noexcept;
  /// -> kDisabled without a word. @param reason static storage.
  void disable(const char* reason) noexcept;

  /// Notes a failure; the fifth in a row of its kind disables, with one line.
  /// @param site where, static storage.
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

/// The process's state. Constant-initialised and never destroyed: hooks may run before and after
/// everything else.
State& process_state() noexcept;

}  // namespace convtrace::engine
