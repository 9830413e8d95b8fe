#pragma once
/// @file pattern.h
/// Patterns over kernel names and scope paths, and `;`-separated lists of them.
///
/// Threads:  immutable once compiled.
/// Errors:   an invalid expression is kInvalidArgument; matching never fails and never throws.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/base/status.h"

namespace convtrace::settings {

/// A glob (`*`, `?`, whole name) or, after `re:`, an ECMAScript regular expression searched
/// anywhere (without back-references, so that matching takes linear time and a bounded stack).
class Pattern {
 public:
  /// @return kInvalidArgument for an invalid expression or an empty text.
  [[nodiscard]] static Result<Pattern> compile(std::string_view text);
  [[nodiscard]] bool matches(std::string_view name) const noexcept;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

/// Compiles a list as CONVTRACE_INCLUDE takes it: patterns separated by `;`, empty ones ignored.
/// @return kInvalidArgument (detail: position of the invalid pattern in `text`).
[[nodiscard]] Result<std::vector<Pattern>> compile_patterns(std::string_view text);

}  // namespace convtrace::settings
