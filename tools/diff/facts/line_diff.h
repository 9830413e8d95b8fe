#pragma once
/// @file line_diff.h
/// The lines in which two versions of a source text differ.
///
/// Place:    fact_groups.cpp.
/// Threads:  plain values.

#include <string>
#include <string_view>
#include <vector>

namespace convtrace::diff {

/// @param base, cand  the number of the first line and a line end, then the lines, as the observer
/// records them in a fact `source.NAME`.
/// @return a unified diff with two lines of context: "@@ -12,5 +12,6 @@", then lines that begin with
/// ' ', '-' or '+'. Empty if no line differs.
[[nodiscard]] std::vector<std::string> line_diff(std::string_view base, std::string_view cand);

}  // namespace convtrace::diff
