#pragma once
/// @file glob.h
/// A glob: `*`, `?` and letters, over a whole name. A regular expression has a glob, too, that
/// every name it is found in matches: it excludes most names in nanoseconds, while the expression
/// takes 25 us for a kernel's name of 150 letters.
///
/// Place:    used by pattern.cpp.
/// Threads:  immutable.

#include <string>
#include <string_view>

namespace convtrace::settings {

class Glob {
 public:
  explicit Glob(std::string_view text);
  [[nodiscard]] bool matches(std::string_view name) const noexcept;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string literal_;  ///< the longest part without a wildcard, which is searched for first
};

/// @param expression  an ECMAScript regular expression that std::regex accepts.
/// @return its runs of plain letters outside of groups, with `*` around them; only `*` if the
/// expression has alternatives.
[[nodiscard]] Glob glob_around(std::string_view expression);

}  // namespace convtrace::settings
