#pragma once
/// @file mutation.h
/// Marks the places where a rule of docs/gpu-double.md can be broken on purpose: a test has to notice
/// each one (tests/unit/cupti/rules/README.md).
///
/// Place:    only the copy of this library that tests/unit/cupti/rules links is built with
///           CONVTRACE_MUTATIONS; in every other build a mark is the constant `false`.

#ifdef CONVTRACE_MUTATIONS
namespace convtrace::cupti {
/// @return whether the test has asked for this mutation. Any thread.
[[nodiscard]] bool is_mutated(const char* name) noexcept;
}  // namespace convtrace::cupti
#define MUTATION(name) ::convtrace::cupti::is_mutated(#name)
#else
#define MUTATION(name) false
#endif
