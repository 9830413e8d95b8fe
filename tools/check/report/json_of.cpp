
#include "tools/check/report/reports.h"
#include "tools/check/report/story_text.h"

namespace convtrace::check {
namespace {

using tools::Json;
using tools::text_or_null;

Json place_json(const Finding& finding) {
  return {{"rank", finding.rank},
          {"step", finding.step ? Json(*finding.step) : Json()},
          {"phase", finding.phase ? Json(to_string(*finding.phase)) : Json()},
          {"scope", finding.scope ? Json(*finding.scope) : Json()},
          {"op", text_or_null(finding.op)},
          {"slot", text_or_null(finding.slot)}};
}

Json finding_json(const Finding& finding) {
  Json json{{"id", finding.id}, {"level", to_string(finding.severity)}};
  json.update(place_json(finding));
  json.update({{"text", finding.text},
               {"evidence", finding.evidence},
               {"cause", finding.cause},
               {"next", finding.next},
               {"times", finding.times},
               {"made_by", finding.made_by ? diff::made_by_json(*finding.made_by) : Json()}});
  return json;
}

/// @return "nothing to judge for: nan, clipping"; "" if each check had something to judge.
std::string not_judged(const CheckResult& result) {
  std::string text;
  for (const Looked& one : result.looked)
    if (one.times == 0)
      text += (text.empty() ? "nothing to judge for: " : ", ") + std::string(one.id);
  return text;
}

}  // namespace

report::Brief brief_of(const CheckResult& result) {
  report::Brief brief = report::nothing_found(headline(result), result.incomplete, result.notes);
  if (!result.findings.empty()) {
    const Finding& worst = result.findings.front();
    brief.verdict = to_string(worst.severity);
    brief.place = place_json(worst);
    brief.cause = worst.cause;
    brief.confidence = report::confidence_of(worst.severity);
    brief.evidence = worst.evidence;
    brief.evidence.insert(brief.evidence.begin(), std::string(worst.id) + ": " + worst.text);
    if (!worst.next.empty()) brief.next = {worst.next};
  }
  if (std::string text = not_judged(result); !text.empty())
    brief.cannot_tell.push_back(std::move(text));
  return brief;
}

Json json_of(const CheckResult& result) {
  return {{"headline", headline(result)},
          {"traces", result.paths},
          {"ranks", result.ranks},
          {"steps", result.steps},
          {"training_steps", result.steps_trained},
          {"values", result.values},
          {"incomplete", result.incomplete},
          {"notes", result.notes},
          {"story", tools::json_list(result.stories, story_json)},
          {"findings", tools::json_list(result.findings, finding_json)},
          {"checks", tools::json_list(result.looked, [](const Looked& one) {
             return Json{{"id", one.id}, {"what", one.what}, {"judged", one.times}};
           })}};
}

}  // namespace convtrace::check
