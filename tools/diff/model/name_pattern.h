#pragma once
/// @file name_pattern.h
/// Joins module names that differ in numbers only, as those of a model's layers do.
///
/// Place:    facts and reports, to join entries that are equal in many layers.

#include <set>
#include <string>
#include <string_view>

namespace convtrace::diff {

/// @return the name with `*` for each number: "blocks.*.attn" of "blocks.3.attn".
[[nodiscard]] std::string shape_of(std::string_view scope);

/// @return the pattern of two names, or patterns, of one shape: `*` where they differ.
[[nodiscard]] std::string pattern_of(std::string_view a, std::string_view b);

/// Names of one shape.
struct NameFamily {
  std::string pattern;
  std::set<std::string> names;

  /// @param name  of the same shape as the names before it.
  /// @return whether it is a new name.
  bool add(const std::string& name);
};

}  // namespace convtrace::diff
