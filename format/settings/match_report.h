#pragma once
/// @file match_report.h
/// At the end of a run: what a pattern matched, and if that is nothing, what it may have meant.
///
/// Place:    rules and filters say it in the same words.
/// Threads:  plain values.

#include <string>
#include <string_view>
#include <vector>

#include "format/base/messages.h"

namespace convtrace::settings {

/// Names that patterns were asked about, as many as are worth a look at the end.
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

/// @param where  what the pattern was written as: "rules.toml:3: kernel".
/// @param if_none  what to say where no name occurred: "no kernel was launched".
/// @return the line that names the pattern and the three nearest names that occurred.
[[nodiscard]] Notice unmatched(std::string_view where, std::string_view pattern,
                               std::string_view if_none, const SeenNames& seen);

/// How far `name` is from matching a pattern: what the pattern has too much costs more than what
/// the name has, since a prefix left out is the usual slip.
[[nodiscard]] size_t pattern_distance(std::string_view pattern, std::string_view name);

}  // namespace convtrace::settings
