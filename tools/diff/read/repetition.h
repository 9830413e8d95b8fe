#pragma once
/// @file repetition.h
/// Whether a repetition of a run has all of its bits. What counts are values: facts differ between
/// runs that repeat, since a random generator that nobody seeds and nobody draws from is another
/// one in each.
///
/// Place:    diff.cpp, before exactness is decided.
/// Cost:     reads nothing of the steps that have equal sums, and values alone of the others.

#include <optional>
#include <string>

namespace convtrace::diff {

/// @param run, repetition  paths of traces.
/// @return true if the values of all the run's steps have equal bits in the repetition, false if
/// some have not; nullopt if that is not known, since steps are missing, damaged or cut.
[[nodiscard]] std::optional<bool> repeats(const std::string& run, const std::string& repetition);

}  // namespace convtrace::diff
