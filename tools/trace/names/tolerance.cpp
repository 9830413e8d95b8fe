#include "tools/trace/names/tolerance.h"

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

bool fits(const settings::Pattern& pattern, const format::Definitions& names,
          const ValueRecord& record) {
  const auto matches = [&](std::string_view text) {
    return !text.empty() && pattern.matches(text);
  };
  const RecordKey& key = record.key;
  return matches(names.text(key.scope)) || matches(names.text(key.op)) ||
         matches(names.text(key.family)) || matches(names.text(key.slot)) ||
         matches(tools::demangled(names.text(record.kernel)));
}

std::optional<double> Tolerances::of(const ValueRecord& record) {
  if (rules_.empty()) return std::nullopt;
  const RecordKey& key = record.key;
  const auto [known, is_new] = known_.try_emplace(
      RecordKey{.scope = key.scope, .op = key.op, .family = key.family, .slot = key.slot});
  if (!is_new) return known->second;
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (!fits(rule->pattern, names_, record)) continue;
    known->second = rule->relative;
    break;
  }
  return known->second;
}

}  // namespace convtrace::diff
