#pragma once
/// @file repetition.h
/// Tests whether a repetition of a run has the same bits. Only values count: facts differ between
/// runs that repeat, since a random generator that is neither seeded nor used has another state in
/// each.
///
/// Place:    diff.cpp, before exactness is decided.
/// Cost:     steps with equal sums are not read, of other steps only the values.

#include <optional>
#include <string>

namespace convtrace::diff {

/// @param run, repetition  paths of traces.
/// @return true if all values of all steps have equal bits in the repetition, false if some have
/// not; nullopt if it is not known, because steps are missing, damaged or cut.
[[nodiscard]] std::optional<bool> repeats(const std::string& run, const std::string& repetition);

}  // namespace convtrace::diff
