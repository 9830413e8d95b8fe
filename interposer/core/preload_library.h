#pragma once
/// @file preload_library.h
/// Data of the preload library (hooks_v1.h) that the engine reads and sets.
///
/// Threads:  any.
/// Errors:   without the preload library there is nothing to read or set.

#include <atomic>

namespace convtrace::engine {

/// @return the switch for reports of CPU tensors; null if the library is not loaded.
[[nodiscard]] std::atomic<int>* cpu_reports() noexcept;

/// Notes, for the preload library and for `convtrace run`, that the user has a trace or was told
/// why not.
void mark_explained() noexcept;

}  // namespace convtrace::engine
