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

Json origin_json(const Origin& origin) {
  return {{"kind", to_string(origin.kind)},
          {"rank", origin.rank ? Json(*origin.rank) : Json()},
          {"suspects", origin.suspects},
          {"step", origin.step},
          {"phase", origin.phase ? Json(to_string(*origin.phase)) : Json()},
          {"scope", origin.scope ? Json(*origin.scope) : Json()},
          {"op", text_or_null(origin.op)},
          {"slot", text_or_null(origin.slot)},
          {"text", origin.text},
          {"evidence", origin.evidence},
          {"next", origin.next},
          {"ranks", origin.ranks},
          {"collective", through_json(origin.through)},
          {"times", origin.times}};
}

}  // namespace

Json json_of(const OriginResult& result) {
  Json json{{"traces", result.paths},
            {"ranks", result.ranks},
            {"world_size", result.world_size},
            {"steps", result.steps},
            {"collectives", result.collectives},
            {"transfers", result.transfers},
            {"joined", result.joined},
            {"values", result.values},
            {"origins", Json::array()},
            {"left_out", result.origins_left_out},
            {"notes", result.notes},
            {"incomplete", result.incomplete}};
  for (const Origin& origin : result.origins) json["origins"].push_back(origin_json(origin));
  return json;
}

}  // namespace convtrace::origin
