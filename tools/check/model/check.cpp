#include "tools/check/model/check.h"

#include <algorithm>
#include <cmath>

#include "tools/common/json.h"
#include "tools/common/text.h"
#include "tools/trace/model/distance.h"

namespace convtrace::check {

std::string parameter_name(const format::Definitions& names, const Parameter& parameter) {
  std::string name(names.text(parameter.scope));
  if (!name.empty()) name += '.';
  return name += names.text(parameter.name);
}

std::string module_name(const format::Definitions& names, format::StringId scope) {
  return tools::module_text(names.text(scope));
}

Finding about(std::string_view id, Severity severity, const Surroundings& around, uint32_t step,
              const Value& value) {
  Finding finding{.id = id, .severity = severity, .rank = around.rank};
  if (step != format::kNoStep) finding.step = step;
  finding.phase = value.place.phase;
  if (value.place.scope) finding.scope = around.names.text(value.place.scope);
  finding.op = around.names.text(value.op);
  finding.slot = around.names.text(value.slot);
  return finding;
}

double relative_distance(const Value& a, const Value& b) {
  if (!a.measured() || !b.measured() || a.stats.count != b.stats.count) return 1;
  const double size = a.stats.l2;
  if (!(size > 0)) return b.stats.l2 > 0 ? 1 : 0;
  double apart = std::abs(a.stats.l2 - b.stats.l2);
  const format::Sketch &x = a.stats.sketch, &y = b.stats.sketch;
  if (x.is_known() && y.is_known()) {
    apart = diff::sketched_distance(x, y);
  } else {
    apart = std::max(apart, std::abs(a.stats.mean - b.stats.mean) *
                                std::sqrt(static_cast<double>(a.stats.count)));
  }
  return std::isfinite(apart) ? apart / size : 1;
}

std::string numbers_of(const Value& value) {
  std::string text = "hash " + tools::hex_text(value.stats.hash);
  if (value.measured()) text += ", l2 " + tools::number_text(value.stats.l2);
  return text;
}

}  // namespace convtrace::check
