#pragma once
/// @file guarded.h
/// The boundary between the host's code and convtrace: every entry from foreign code passes it, and
/// no exception leaves through it.
///
/// Errors:   an exception is counted (state.h), and the call returns `otherwise`. Code further
///           inside catches its own exceptions only where it can drop a single event or value.

#include <cerrno>
#include <utility>

#include "interposer/core/runtime/state.h"

namespace convtrace::engine {

/// Marks that the calling thread is inside convtrace, so that calls of convtrace are not traced
/// themselves. Converts to false for a nested entry. Initial-exec TLS: the engine is loaded with dlopen,
/// and the default TLS model may call malloc at a thread's first access.
class RecursionGuard {
 public:
  RecursionGuard() noexcept : entered_(!inside_) { inside_ = true; }
  ~RecursionGuard() {
    if (entered_) inside_ = false;
  }
  RecursionGuard(const RecursionGuard&) = delete;
  RecursionGuard& operator=(const RecursionGuard&) = delete;

  explicit operator bool() const noexcept { return entered_; }
  [[nodiscard]] static bool inside() noexcept { return inside_; }

 private:
  static inline thread_local constinit bool inside_ __attribute__((tls_model("initial-exec"))) =
      false;
  bool entered_;
};

/// Runs `fn`; an exception is counted and gives `otherwise`. Used directly by code that is inside
/// already, behind noexcept interfaces (event_sink.h, interceptor.h).
template <typename R, typename Fn>
R contained(const char* site, R otherwise, Fn&& fn) noexcept {
  try {
    R result = fn();
    process_state().succeeded(FailureKind::kException);
    return result;
  } catch (...) {
    process_state().failed(FailureKind::kException, site);
  }
  return otherwise;
}

/// Runs `fn` if `admit` accepts the state of tracing and the thread is not inside convtrace
/// already. Preserves the host's errno.
/// @param site static storage.
template <typename R, typename Admit, typename Fn>
R guarded_if(const char* site, R otherwise, Admit&& admit, Fn&& fn) noexcept {
  if (!admit(std::as_const(process_state()))) return otherwise;
  const RecursionGuard guard;
  if (!guard) return otherwise;
  const int saved_errno = errno;
  R result = contained(site, std::move(otherwise), std::forward<Fn>(fn));
  errno = saved_errno;
  return result;
}

/// The usual case: runs `fn` only while events are taken.
template <typename R, typename Fn>
R guarded(const char* site, R otherwise, Fn&& fn) noexcept {
  return guarded_if(
      site, std::move(otherwise), [](const State& state) { return state.active(); },
      std::forward<Fn>(fn));
}

}  // namespace convtrace::engine
