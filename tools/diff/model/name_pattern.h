#pragma once
/// @file name_pattern.h
/// Names of modules that differ in numbers alone, as the layers of a model do.
///
/// Place:    facts and reports join what is the same of many layers.

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

  /// @param name  has the shape of those before it.
  /// @return whether it is a new one.
  bool add(const std::string& name);
};

}  // namespace convtrace::diff
