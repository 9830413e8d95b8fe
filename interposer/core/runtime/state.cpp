#include "interposer/core/runtime/state.h"

#include "format/base/log.h"

namespace convtrace::engine {
namespace {

constexpr const char* to_string(FailureKind kind) {
  switch (kind) {
    case FailureKind::kException: return "five exceptions in a row";
    case FailureKind::kMalformedBatch: return "five malformed batches from the observer in a row";
    case FailureKind::kStatistics: return "statistics failed five times in a row";
  }
  return "five failures in a row";
}

}  // namespace

bool State::begin_arming() noexcept {
  EngineState expected = EngineState::kOff;
  return state_.compare_exchange_strong(expected, EngineState::kArming, std::memory_order_acq_rel);
}

void State::activate() noexcept {
  EngineState expected = EngineState::kArming;
  state_.compare_exchange_strong(expected, EngineState::kActive, std::memory_order_acq_rel);
}

bool State::begin_draining() noexcept {
  EngineState expected = EngineState::kActive;
  return state_.compare_exchange_strong(expected, EngineState::kDraining,
                                        std::memory_order_acq_rel);
}

void State::disable(const char* reason) noexcept {
  const char* none = "";
  const char* expected = reason_.load(std::memory_order_acquire);
  if (*expected == *none) reason_.compare_exchange_strong(expected, reason);
  state_.store(EngineState::kDisabled, std::memory_order_release);
}

void State::failed(FailureKind kind, const char* site) noexcept {
  auto& count = failures_[static_cast<size_t>(kind)];
  // Only the fifth failure writes the line, however many threads fail at once.
  if (count.fetch_add(1, std::memory_order_relaxed) + 1 != kMaxConsecutiveFailures) return;
  log_line(messages::kTurnedOff, "%s: %s; tracing is over in this process, the program continues",
           site, to_string(kind));
  disable(to_string(kind));
}

State& process_state() noexcept {
  static constinit State state;
  return state;
}

}  // namespace convtrace::engine
