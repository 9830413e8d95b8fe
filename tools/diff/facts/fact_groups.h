#pragma once
/// @file fact_groups.h
/// From the facts of single modules to what a reader wants to be told.
///
/// Place:    facts.cpp.
/// Threads:  plain values.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/meta.h"
#include "tools/diff/facts/facts.h"

namespace convtrace::diff {

/// @return key and value of each part of "p=0.1, sizes=(2, 3), name='a, b'"; parts without `=` are
/// left out, and so is the last one where the text was cut inside of it.
[[nodiscard]] std::map<std::string, std::string> parse_settings(std::string_view text);

/// @return how the fingerprints of two runs differ: a file each, or a class.
[[nodiscard]] std::vector<FactDifference> code_differences(const format::TraceMeta& base,
                                                           const format::TraceMeta& cand);

/// @param name  of such a difference. @return whether it is about the class of the code at `place`.
[[nodiscard]] bool is_class_at(std::string_view name, const CodePlace& place);

/// Joins equal differences of several ranks, and of modules whose names differ in numbers alone.
[[nodiscard]] std::vector<FactDifference> grouped(std::span<const FactDifference> facts);

}  // namespace convtrace::diff
