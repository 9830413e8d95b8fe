#include "tools/check/report/reports.h"
#include "tools/check/report/story_text.h"

namespace convtrace::check {
namespace {

using tools::Json;
using tools::text_or_null;

Json finding_json(const Finding& finding) {
  return {{"id", finding.id},
          {"level", to_string(finding.severity)},
          {"rank", finding.rank},
          {"step", finding.step ? Json(*finding.step) : Json()},
          {"phase", finding.phase ? Json(to_string(*finding.phase)) : Json()},
          {"scope", finding.scope ? Json(*finding.scope) : Json()},
          {"op", text_or_null(finding.op)},
          {"slot", text_or_null(finding.slot)},
          {"text", finding.text},
          {"evidence", finding.evidence},
          {"cause", finding.cause},
          {"next", finding.next},
          {"times", finding.times},
          {"made_by", finding.made_by ? diff::made_by_json(*finding.made_by) : Json()}};
}

}  // namespace

Json json_of(const CheckResult& result) {
  Json json{{"traces", result.paths},    {"ranks", result.ranks},
            {"steps", result.steps},     {"training_steps", result.steps_trained},
            {"values", result.values},   {"incomplete", result.incomplete},
            {"notes", result.notes},     {"story", Json::array()},
            {"findings", Json::array()}, {"checks", Json::array()}};
  for (const Story& story : result.stories) json["story"].push_back(story_json(story));
  for (const Finding& finding : result.findings) json["findings"].push_back(finding_json(finding));
  for (const Looked& one : result.looked)
    json["checks"].push_back({{"id", one.id}, {"what", one.what}, {"judged", one.times}});
  return json;
}

}  // namespace convtrace::check
