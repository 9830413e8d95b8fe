#include "tools/weights/report.h"

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::weights {
namespace {

using tools::Json;

constexpr size_t kShown = 20;

Json compared_json(const Compared& one) {
  return {{"name", one.name},
          {"verdict", to_string(one.verdict)},
          {"in_a", one.in_a},
          {"in_b", one.in_b},
          {"stale", one.verdict == Verdict::kStale ? Json(one.stale_is_b ? "b" : "a") : Json()},
          {"stale_by", one.verdict == Verdict::kStale ? Json(one.stale_by) : Json()},
          {"version", one.version ? Json(*one.version) : Json()},
          {"distance", one.distance ? tools::json_number(*one.distance) : Json()},
          {"text", one.text}};
}

std::string headline(const Comparison& result) {
  std::string parts;
  for (size_t i = kVerdicts; i-- > 0;) {
    const auto verdict = static_cast<Verdict>(i);
    const size_t count = result.count(verdict);
    if (count == 0) continue;
    parts += (parts.empty() ? "" : ", ") + tools::count_text(count) + ' ' +
             std::string(to_string(verdict));
  }
  const size_t all = result.parameters.size();
  if (all == 0) return "No parameter was recorded.";
  const bool known = result.count(Verdict::kNotKnown) == 0;
  const std::string verdict = result.faults() != 0 ? "The weights are not the same"
                              : known              ? "The weights are the same"
                                                   : "No difference is known";
  return verdict + ": of " + tools::counted(all, "parameter") + ' ' + parts + '.';
}

}  // namespace

Json json_of(const Comparison& result) {
  Json counts = Json::object();
  for (size_t i = 0; i < kVerdicts; ++i)
    counts[std::string(to_string(static_cast<Verdict>(i)))] = result.count(static_cast<Verdict>(i));
  Json json{{"a", result.a->path},
            {"b", result.b->path},
            {"same", result.faults() == 0 && result.count(Verdict::kNotKnown) == 0 &&
                         !result.parameters.empty()},
            {"counts", std::move(counts)},
            {"incomplete", Json::array()},
            {"parameters", tools::json_list(result.parameters, compared_json)}};
  for (const Weights* side : {result.a, result.b})
    for (const std::string& line : side->incomplete) json["incomplete"].push_back(line);
  return json;
}

void write_text(const Comparison& result, diff::Terminal terminal, std::ostream& out) {
  const auto line = [&](std::string_view label, const std::string& text) {
    out << diff::labelled(terminal, label, text);
  };
  out << diff::painted(terminal, result.faults() == 0 ? "32;1" : "31;1",
                       diff::wrapped(headline(result), terminal.columns, 0, 2))
      << "\n";
  line("A           ", tools::escape_text(result.a->path) + ", " +
                           tools::counted(result.a->parameters.size(), "parameter") + " of " +
                           tools::counted(result.a->ranks.size(), "trace"));
  line("B           ", tools::escape_text(result.b->path) + ", " +
                           tools::counted(result.b->parameters.size(), "parameter") + " of " +
                           tools::counted(result.b->ranks.size(), "trace"));
  for (const Weights* side : {result.a, result.b})
    for (const std::string& why : side->incomplete) line("incomplete  ", why);
  size_t shown = 0, more = 0;
  for (const Compared& one : result.parameters) {
    if (one.verdict == Verdict::kEqual || one.verdict == Verdict::kEqualNumbers ||
        one.verdict == Verdict::kCast)
      continue;
    if (shown++ < kShown) {
      std::string label(to_string(one.verdict));
      label.resize(12, ' ');
      line(label, tools::escape_text(one.text));
    } else {
      ++more;
    }
  }
  if (more != 0) line("            ", "and " + tools::count_text(more) + " more (--json has all)");
}

}  // namespace convtrace::weights
