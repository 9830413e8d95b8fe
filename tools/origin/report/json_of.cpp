#include "tools/origin/model/rank_text.h"
#include "tools/origin/report/reports.h"

namespace convtrace::origin {
namespace {

using tools::Json;
using tools::text_or_null;

Json through_json(const std::optional<Through>& through) {
  if (!through) return Json();
  return {{"group", through->group},
          {"op", through->op},
          {"number", through->number},
          {"step", through->step},
          {"scope", through->scope ? Json(*through->scope) : Json()}};
}

Json place_json(const Origin& origin) {
  return {{"rank", origin.rank ? Json(*origin.rank) : Json()},
          {"suspects", origin.suspects},
          {"step", origin.step},
          {"phase", origin.phase ? Json(to_string(*origin.phase)) : Json()},
          {"scope", origin.scope ? Json(*origin.scope) : Json()},
          {"op", text_or_null(origin.op)},
          {"slot", text_or_null(origin.slot)}};
}

Json origin_json(const Origin& origin) {
  Json json{{"kind", to_string(origin.kind)}};
  json.update(place_json(origin));
  json.update({{"text", origin.text},
               {"evidence", origin.evidence},
               {"next", origin.next},
               {"ranks", origin.ranks},
               {"collective", through_json(origin.through)},
               {"times", origin.times}});
  return json;
}

}  // namespace

report::Brief brief_of(const OriginResult& result) {
  report::Brief brief = report::nothing_found(headline(result), result.incomplete, result.notes);
  if (!result.origins.empty()) {
    const Origin& first = result.origins.front();
    brief.verdict = to_string(first.kind);
    brief.place = place_json(first);
    brief.place["suspects"] = text_or_null(ranks_named(first.suspects));
    brief.confidence = first.rank ? report::Confidence::kProven : report::Confidence::kLikely;
    brief.evidence = first.evidence;
    brief.evidence.insert(brief.evidence.begin(), first.text);
    if (!first.next.empty()) brief.next = {first.next};
  }
  return brief;
}

Json json_of(const OriginResult& result) {
  return {{"headline", headline(result)},
          {"traces", result.paths},
          {"ranks", result.ranks},
          {"world_size", result.world_size},
          {"steps", result.steps},
          {"collectives", result.collectives},
          {"transfers", result.transfers},
          {"joined", result.joined},
          {"values", result.values},
          {"origins", tools::json_list(result.origins, origin_json)},
          {"left_out", result.origins_left_out},
          {"notes", result.notes},
          {"incomplete", result.incomplete}};
}

}  // namespace convtrace::origin
