#pragma once
/// @file name_pattern.h
/// Names of modules that differ in numbers alone, as the layers of a model do.
///
/// Place:    facts and reports join what is the same of many layers.

#include <string>
#include <string_view>

namespace convtrace::diff {

/// @return the name with `*` for each number: "blocks.*.attn" of "blocks.3.attn".
[[nodiscard]] std::string shape_of(std::string_view scope);

/// @return the pattern of two names, or patterns, of one shape: `*` where they differ.
[[nodiscard]] std::string pattern_of(std::string_view a, std::string_view b);

}  // namespace convtrace::diff
