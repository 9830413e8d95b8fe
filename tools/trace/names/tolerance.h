#pragma once
/// @file tolerance.h
/// Tolerances that the user gives for some values: `--tol 're:attn=1e-3'`.
///
/// Threads:  not thread-safe: it caches its answers.

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "format/settings/pattern.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

struct ToleranceRule {
  settings::Pattern pattern;  ///< matches a module path, op, kernel, kernel family or slot
  double relative = 0;        ///< in units of the size that a field is compared with (compare.h)
};

/// @return nullopt if `text` is not PATTERN=NUMBER with a number of 0 or more.
[[nodiscard]] std::optional<ToleranceRule> parse_tolerance(std::string_view text);

/// @return nullopt if `text` is no pattern. Values that match may differ by any amount.
[[nodiscard]] std::optional<ToleranceRule> parse_ignored(std::string_view text);

/// @return whether the pattern matches a value's module path, op, kernel, kernel family or slot.
[[nodiscard]] bool fits(const settings::Pattern& pattern, const format::Definitions& names,
                        const ValueRecord& record);

class Tolerances {
 public:
  /// @param names  texts of the records' ids. The last rule that matches is used.
  Tolerances(const format::Definitions& names, std::vector<ToleranceRule> rules)
      : names_(names), rules_(std::move(rules)) {}

  [[nodiscard]] std::optional<double> of(const ValueRecord& record);

 private:
  const format::Definitions& names_;
  std::vector<ToleranceRule> rules_;
  /// By the names in the key only.
  std::unordered_map<RecordKey, std::optional<double>, KeyHash> known_;
};

}  // namespace convtrace::diff
