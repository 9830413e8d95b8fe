#include "tools/diff/model/tolerance.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tools/common/text.h"

namespace convtrace::diff {

std::optional<ToleranceRule> parse_tolerance(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string_view number = text.substr(equals + 1);
  double value = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), value);
  const bool whole = failed == std::errc() && end == number.data() + number.size();
  if (!whole || !std::isfinite(value) || value < 0) return std::nullopt;
  auto pattern = settings::Pattern::compile(text.substr(0, equals));
  if (!pattern.ok()) return std::nullopt;
  return ToleranceRule{std::move(pattern).value(), value};
}

std::optional<ToleranceRule> parse_ignored(std::string_view text) {
  auto pattern = settings::Pattern::compile(text);
  if (!pattern.ok()) return std::nullopt;
  return ToleranceRule{std::move(pattern).value(), std::numeric_limits<double>::infinity()};
}

std::optional<double> Tolerances::of(const ValueRecord& record) {
  if (rules_.empty()) return std::nullopt;
  const RecordKey& key = record.key;
  const auto [known, is_new] = known_.try_emplace(
      RecordKey{.scope = key.scope, .op = key.op, .family = key.family, .slot = key.slot});
  if (!is_new) return known->second;
  const std::string kernel = tools::demangled(names_.text(record.kernel));
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    const auto fits = [&](std::string_view text) {
      return !text.empty() && rule->pattern.matches(text);
    };
    if (fits(names_.text(key.scope)) || fits(names_.text(key.op)) || fits(kernel) ||
        fits(names_.text(key.family)) || fits(names_.text(key.slot))) {
      known->second = rule->relative;
      break;
    }
  }
  return known->second;
}

}  // namespace convtrace::diff
