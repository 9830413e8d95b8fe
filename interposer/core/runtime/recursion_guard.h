#pragma once
/// @file recursion_guard.h
/// Marks that this thread is inside convtrace, so that calls of convtrace are not traced
/// themselves.
///
/// Threads:  per thread.
/// Source:   initial-exec TLS: the engine is loaded with dlopen, and the default TLS model may call
///           malloc at a thread's first access.

namespace convtrace::engine {

/// Shows that the calling thread has entered convtrace. Converts to false for a nested entry.
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

}  // namespace convtrace::engine
