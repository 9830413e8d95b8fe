#pragma once
/// @file match_report.h
/// Reports at the end of a run what a pattern matched, and the nearest names if it matched nothing.
///
/// Place:    rules and filters, so that both use the same text.
/// Threads:  plain values.

#include <string>
#include <string_view>
#include <vector>

#include "format/base/messages.h"

namespace convtrace::settings {

/// Names that were compared with patterns; keeps as many as a report can use.
class SeenNames {
 public:
  static constexpr size_t kMost = 4096;

  void add(std::string_view name) {
    if (names_.size() < kMost && !name.empty()) names_.emplace_back(name);
  }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;
};

/// @param where  how the pattern was written: "rules.toml:3: kernel".
/// @param if_none  the text if there were no names at all: "no kernel was launched".
/// @return the line that names the pattern and the three nearest names that occurred.
[[nodiscard]] Notice unmatched(std::string_view where, std::string_view pattern,
                               std::string_view if_none, const SeenNames& seen);

/// Distance of `name` from matching the pattern. Letters that only the pattern has cost more than
/// letters that only the name has, since a missing prefix is the usual mistake.
[[nodiscard]] size_t pattern_distance(std::string_view pattern, std::string_view name);

}  // namespace convtrace::settings
