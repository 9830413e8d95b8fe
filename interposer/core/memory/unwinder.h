#pragma once
/// @file unwinder.h
/// Call stacks of the host as return addresses; stack_texts.h converts them into text when a finding is
/// made. Lines of Python replace the interpreter's frames (python_frames.h).
///
/// glibc's backtrace(), which takes 150 ns a frame instead of 6, replaces libunwind (libunwind.h) where
/// that cannot be used; stack_source() returns which one is in use.
///
/// Threads:  any, concurrently.
/// Errors:   no stack: zero frames.
/// Source:   docs/findings.md "How findings are told"; libunwind(3) unw_backtrace, backtrace(3).

#include <cstdint>
#include <span>

#include "interposer/core/memory/python_frames.h"

namespace convtrace::engine {

inline constexpr size_t kMaxRawFrames = 48;

/// Return addresses, innermost first.
struct RawStack {
  void* frames[kMaxRawFrames +
               kMaxPythonFrames];  ///< not cleared: most reports of memory have no stack
  uint32_t count = 0;
  [[nodiscard]] std::span<void* const> span() const { return {frames, count}; }
};

/// Captures the calling thread's stack. The first call opens libunwind, which reads the disk.
void capture_stack(RawStack& stack) noexcept;

/// @return `frames` without the innermost frames that lie in convtrace's libraries.
[[nodiscard]] std::span<void* const> without_own_frames(std::span<void* const> frames) noexcept;

/// @return "libunwind" or "backtrace()", after the first capture.
[[nodiscard]] const char* stack_source() noexcept;

}  // namespace convtrace::engine
