#include "tools/diff/report/reports.h"

#include <algorithm>
#include <cmath>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/facts/excuses.h"
#include "tools/diff/report/next_commands.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {
namespace {

using tools::Json;
using tools::step_json;
using tools::text_or_null;

Json number_or_null(double value) { return std::isnan(value) ? Json() : tools::json_number(value); }

Json side_json(const SideReport& side) {
  Json json = tools::stats_json(side.stats, side.dtype, side.capture);
  json["dtype"] = to_string(side.dtype);
  json["shape"] = side.has_shape ? Json(side.shape) : Json();
  json["extent"] = to_string(side.extent);
  return json;
}

Json elements_json(const ElementReport& e) {
  Json json = {{"count", e.count},
               {"compared", e.compared},
               {"differing", e.differing},
               {"not_numbers", e.not_numbers},
               {"max_abs", tools::json_number(e.max_abs)},
               {"max_rel", tools::json_number(e.max_rel)},
               {"cosine", e.cosine}};
  for (size_t i = 0; i < kWithin.size(); ++i) {
    json["within"][tools::number_text(kWithin[i])] = e.within[i];
  }
  json["ulps"] = e.has_ulps ? Json(e.ulps) : Json();
  json["first"] = Json();
  if (e.first) {
    json["first"] = {{"index", *e.first},
                     {"base", tools::json_number(e.first_base)},
                     {"cand", tools::json_number(e.first_cand)}};
  }
  return json;
}

/// @return the place of a value or a finding.
Json json_of_place(const auto& place) {
  return {{"rank", place.rank},
          {"step", step_json(place.step)},
          {"phase", to_string(place.phase)},
          {"scope", place.scope},
          {"call", place.call},
          {"slot", place.slot},
          {"op", text_or_null(place.op)}};
}

Json record_json(const RecordReport& record, const Comparison& numbers) {
  Json json = json_of_place(record);
  json["kernel"] = text_or_null(record.kernel);
  json["class"] = to_string(record.comparison.verdict);
  json["base"] = side_json(record.base);
  json["cand"] = side_json(record.cand);
  json["difference"] = number_or_null(numbers.difference);
  json["difference_is"] = std::isnan(numbers.difference) ? Json() : Json(precision_of(numbers));
  json["tolerance_used"] = number_or_null(numbers.tolerance);
  json["tolerance_needed"] = number_or_null(numbers.difference);
  json["field"] = to_string(numbers.field);
  json["z"] = number_or_null(numbers.z);
  json["source_difference"] = number_or_null(numbers.source);
  json["matched_by"] = to_string(record.how);
  json["confidence"] = tools::json_number(record.confidence);
  json["cand_scope"] = record.cand_scope;
  json["cand_slot"] = record.cand_slot;
  json["elements"] = record.elements ? elements_json(*record.elements) : Json();
  return json;
}

Json one_sided_json(const OneSided& one_sided) {
  if (one_sided.count == 0) return {};
  Json json = json_of_place(one_sided.first);
  json["count"] = one_sided.count;
  json["in"] = one_sided.in_cand ? "cand" : "base";
  return json;
}

Json region_json(const RegionPlace& region) {
  if (region.calls.empty()) return {};
  Json calls = Json::array();
  for (const RegionCall& call : region.calls) {
    calls.push_back({{"scope", call.scope},
                     {"op", call.op},
                     {"kernel", text_or_null(call.kernel)},
                     {"dropped_write", call.unchanged}});
  }
  return {{"name", text_or_null(region.name)},
          {"border_equal", region.border_equal},
          {"calls", std::move(calls)}};
}

/// For changed-between, whose own values agree, the numbers are those of the first affected record
/// (`effect`).
Json root_json(const std::optional<RootReport>& root) {
  if (!root) return {};
  Json json = record_json(root->record, (root->effect ? *root->effect : root->record).comparison);
  json["setting"] = text_or_null(root->setting);
  json["only_in"] = text_or_null(root->only_in);
  json["written"] = text_or_null(root->written);
  const auto& [wrong, all] = root->updates;
  json["updates"] = all == 0 ? Json() : Json{{"wrong", wrong}, {"all", all}};
  json["holder"] = root->holder ? Json{{"in", root->holder->in_cand ? "cand" : "base"},
                                       {"rank", root->holder->rank}}
                                : Json();
  json["after_backward"] = root->is_after_backward();
  json["rounding_enlarged"] = root->rounding_enlarged;
  json["known_as"] = text_or_null(root->known_as);
  json["matched_before"] = root->matched_before;
  json["one_sided_before"] = one_sided_json(root->one_sided_before);
  const Class worst_input = root->record.comparison.worst_input;
  const bool compared = worst_input != Class::kIdentical || inputs_were_compared(*root);
  json["inputs_agree"] = compared ? Json(agrees(worst_input)) : Json();
  const bool knows_weights = root->weights && !root->weights_are(Shown::kNotCompared);
  json["weights_agree"] = knows_weights ? Json(root->weights_are(Shown::kEqual)) : Json();
  json["worst_input"] = to_string(worst_input);
  json["module_class"] = text_or_null(root->code.module_class);
  json["forward"] = text_or_null(root->code.forward);
  json["called"] = text_or_null(root->code.call);
  const GeneratedCall& generated = root->code.generated;
  json["generated"] = Json();
  if (!generated.kernel.empty()) {
    json["kernel"] = generated.kernel;
    json["generated"] = {{"kernel", generated.kernel},
                         {"nodes", generated.nodes},
                         {"line", text_or_null(generated.line)}};
  }
  json["region"] = region_json(root->region);
  json["made_by"] = root->made_by ? made_by_json(*root->made_by) : Json();
  json["gradients"] = Json::array();
  for (const RecordReport& gradient : root->gradients) {
    json["gradients"].push_back({{"scope", gradient.scope},
                                 {"slot", gradient.slot},
                                 {"class", to_string(gradient.comparison.verdict)},
                                 {"z", number_or_null(gradient.comparison.z)},
                                 {"norm",
                                  {{"base", tools::json_number(gradient.base.stats.l2)},
                                   {"cand", tools::json_number(gradient.cand.stats.l2)}}}});
  }
  json["between"] = Json();
  if (root->came_in) {
    const auto place = [](const RecordReport& record) {
      return Json{{"scope", record.scope}, {"slot", record.slot}, {"call", record.call}};
    };
    json["between"] = {{"after", root->agreed_before ? place(*root->agreed_before) : Json()},
                       {"before", place(*root->came_in)}};
  }
  if (root->weights_differ) json["note"] = root_sentence(*root);
  if (!root->buffers.empty()) json["buffers"] = root->buffers;
  if (root->consumer) {
    json["changed_in"] = root->changed_in_cand ? "cand" : "base";
    json["consumer"] = record_json(*root->consumer, root->consumer->comparison);
    json["effect"] = root->effect ? record_json(*root->effect, root->effect->comparison) : Json();
  }
  return json;
}

Json finding_json(const FindingReport& finding) {
  Json json = json_of_place(finding);
  json["kind"] = to_string(finding.kind);
  json["level"] = to_string(finding.level);
  json["kernel"] = text_or_null(finding.kernel);
  json["slot"] = text_or_null(finding.slot);
  json["other"] = text_or_null(finding.other);
  json["bytes"] = finding.bytes;
  json["message"] = finding.message;
  json["stacks"] = {{"alloc", finding.alloc_stack},
                    {"launch", finding.launch_stack},
                    {"free", finding.free_stack}};
  json["suppressed"] = finding.suppressed;
  json["story"] = finding.story;
  return json;
}

Json findings_json(const Findings& findings) {
  Json list = Json::array();
  for (const FindingReport& finding : findings.list) list.push_back(finding_json(finding));
  return list;
}

Json summary_json(const StepSummary& s) {
  const auto number = [](const std::optional<double>& value) {
    return value ? tools::json_number(*value) : Json();
  };
  const auto norm = [](uint64_t gradients, double squares) {
    return gradients == 0 ? Json() : tools::json_number(std::sqrt(squares));
  };
  return {{"rank", s.rank},
          {"step", step_json(s.step)},
          {"passes", {{"base", s.base_passes}, {"cand", s.cand_passes}}},
          {"loss", {{"base", number(s.base_loss)}, {"cand", number(s.cand_loss)}}},
          {"gradient_norm",
           {{"base", norm(s.gradients, s.base_gradients)},
            {"cand", norm(s.gradients, s.cand_gradients)}}},
          {"unclipped_norm",
           {{"base", norm(s.unclipped, s.base_unclipped)},
            {"cand", norm(s.unclipped, s.cand_unclipped)}}},
          {"class", to_string(*std::ranges::max_element(s.worst))}};
}

/// @return the result of each rank by itself. Whether the runs can be compared is decided for all
/// ranks together.
Json ranks_json(const std::vector<RankReport>& ranks) {
  Json list = Json::array();
  for (const RankReport& rank : ranks) {
    Json root;
    if (rank.root) {
      const RecordReport& record = rank.root->record;
      root = json_of_place(record);
      root.erase("rank");
      root["kernel"] = text_or_null(record.kernel);
      root["class"] = to_string(record.comparison.verdict);
    }
    list.push_back({{"rank", rank.rank},
                    {"verdict", to_string(rank.root ? Verdict::kDiverged : Verdict::kSame)},
                    {"values", rank.values},
                    {"root", root},
                    {"received", rank.received}});
  }
  return list;
}

Json carried_json(const Carried& carried) {
  if (!carried.first) return {};
  return {{"count", carried.count},
          {"largest", tools::json_number(carried.largest)},
          {"first", json_of_place(*carried.first)}};
}

Json one_sided_json(const std::vector<OneSidedGroup>& groups) {
  Json list = Json::array();
  for (const OneSidedGroup& group : groups) {
    list.push_back({{"in", group.in_cand ? "cand" : "base"},
                    {"rank", group.rank},
                    {"phase", to_string(group.phase)},
                    {"scope", group.scope},
                    {"op", text_or_null(group.op)},
                    {"kernel", text_or_null(group.kernel)},
                    {"slot", group.slot},
                    {"values", group.values},
                    {"first_step", step_json(group.first_step)}});
  }
  return list;
}

Json layouts_json(const std::optional<Wholes>& wholes) {
  if (!wholes) return {};
  Json apart = Json::array();
  for (const ApartValue& value : wholes->apart.list) {
    apart.push_back({{"phase", to_string(value.phase)},
                     {"scope", value.scope},
                     {"op", text_or_null(value.op)},
                     {"slot", value.slot},
                     {"values", value.values},
                     {"first_step", step_json(value.first_step)},
                     {"why", value.why}});
  }
  return {{"base_ranks", wholes->base_ranks},
          {"cand_ranks", wholes->cand_ranks},
          {"values_summed", wholes->summed},
          {"values_not_compared", wholes->apart.values},
          {"not_compared", std::move(apart)}};
}

/// About the compared values; null if they diverge, or if there are none.
Json agreement_json(const DiffResult& result) {
  if (result.verdict == Verdict::kDiverged || result.verdict == Verdict::kNotComparable) return {};
  return is_identical(result) ? "identical" : "rounding";
}

Json renamed_json(const std::vector<RenamedModule>& modules) {
  Json list = Json::array();
  for (const RenamedModule& module : modules) {
    list.push_back({{"base", module.base},
                    {"cand", module.cand},
                    {"confidence", tools::json_number(module.confidence)}});
  }
  return list;
}

Json preflight_json(const std::vector<PreflightEntry>& entries) {
  Json list = Json::array();
  for (const PreflightEntry& entry : entries) {
    list.push_back({{"name", entry.name},
                    {"base", entry.base ? Json(*entry.base) : Json()},
                    {"cand", entry.cand ? Json(*entry.cand) : Json()},
                    {"meaning", text_or_null(std::string(meaning_of(entry).text))}});
  }
  return list;
}

Json facts_json(const std::vector<FactDifference>& facts) {
  Json list = Json::array();
  for (const FactDifference& fact : facts) {
    list.push_back({{"kind", to_string(fact.kind)},
                    {"name", fact.name},
                    {"base", fact.base ? Json(*fact.base) : Json()},
                    {"cand", fact.cand ? Json(*fact.cand) : Json()},
                    {"rank", fact.rank},
                    {"step", fact.step},
                    {"scope", fact.scope},
                    {"first", fact.first},
                    {"module_class", text_or_null(fact.module_class)},
                    {"modules", fact.modules},
                    {"configuration", fact.configuration}});
  }
  return list;
}

/// @return the probable cause of the divergence: a finding with all its details, or a rule's text.
Json cause_json(const DiffResult& result) {
  if (!result.cause) return {};
  const auto& [rule, text, evidence, finding] = *result.cause;
  if (finding) {
    const FindingCause& cause = *finding;
    Json json = {{"rule", rule},
                 {"text", title_of_cause(result)},
                 {"evidence", Json::array({cause.finding.message})}};
    json.update(finding_json(cause.finding));
    json["run"] = cause.in_cand ? "cand" : "base";
    json["same_memory"] = cause.same_memory;
    return json;
  }
  return {{"rule", rule}, {"text", text}, {"evidence", evidence}};
}

void append(std::vector<std::string>& all, std::vector<std::string> more) {
  for (std::string& text : more)
    if (!text.empty()) all.push_back(std::move(text));
}

report::Confidence confidence_of(const DiffResult& result) {
  using report::Confidence;
  if (result.verdict == Verdict::kFindings) return Confidence::kProven;
  if (result.verdict == Verdict::kSame)
    return is_identical(result) ? Confidence::kProven : Confidence::kLikely;
  if (!result.root) return Confidence::kNone;
  const RecordReport& record = result.root->record;
  if (!rounding_hint(result).empty()) return Confidence::kPossible;
  const bool equal_before =
      record.phase == format::Phase::kData ||  // made of nothing that is recorded
      (inputs_were_compared(*result.root) && agrees(record.comparison.worst_input));
  return equal_before && record.confidence >= 1 ? Confidence::kProven : Confidence::kLikely;
}

/// The first finding that made the verdict.
const FindingReport* first_error(const DiffResult& result) {
  for (const Findings* findings : {&result.cand_findings, &result.base_findings})
    for (const FindingReport& one : findings->list)
      if (one.level == format::Level::kError && !one.suppressed) return &one;
  return nullptr;
}

}  // namespace

Json place_json(const RecordReport& record) { return json_of_place(record); }

Json per_step_json(const DiffResult& result) {
  Json list = Json::array();
  for (const StepSummary& summary : result.summaries) list.push_back(summary_json(summary));
  return list;
}

report::Brief brief_of(const DiffResult& result) {
  report::Brief brief{.verdict = std::string(to_string(result.verdict)),
                      .headline = headline(result),
                      .confidence = confidence_of(result)};
  if (result.cause) {
    const auto& finding = result.cause->finding;
    brief.cause = finding ? title_of_cause(result) : tools::escape_text(result.cause->text);
    append(brief.evidence,
           finding ? std::vector{finding->finding.message} : result.cause->evidence);
  }
  if (result.root) {
    const RootReport& root = *result.root;
    brief.place = json_of_place(root.record);
    brief.place["kernel"] = text_or_null(root.record.kernel);
    if (root.has_values()) {
      append(brief.evidence,
             {tolerance_text(shown_difference(root)), factor_text(root), before_text(result)});
      if (root.record.phase != format::Phase::kData && !inputs_were_compared(root) &&
          agrees(root.record.comparison.worst_input))
        brief.cannot_tell.emplace_back("what this value was made of was not compared");
    }
  } else if (const FindingReport* const found = first_error(result);
             found != nullptr && result.verdict == Verdict::kFindings) {
    brief.place = json_of_place(*found);
    append(brief.evidence, {found->message});
  }
  if (has_next(result)) brief.next = next_commands(result);
  append(brief.evidence, {compared_text(result)});
  if (brief.next.empty()) append(brief.next, advice(result));
  append(brief.cannot_tell, {result.why_not_comparable, carried_text(result)});
  append(brief.cannot_tell, result.incomplete);
  append(brief.cannot_tell, unread_lines(result));
  append(brief.cannot_tell, one_sided_lines(result));
  return brief;
}

Json json_report(const DiffResult& result) {
  Json json;
  json["verdict"] = to_string(result.verdict);
  json["headline"] = headline(result);
  json["cause"] = cause_json(result);
  json["agreement"] = agreement_json(result);
  json["exact"] = result.exact;
  json["why_exact"] = text_or_null(result.why_exact);
  json["root"] = root_json(result.root);
  json["first_bit_difference"] = root_json(result.first_bit_difference);
  for (size_t i = 0; i < kClassCount; ++i) {
    json["counts"][std::string(to_string(static_cast<Class>(i)))] = result.counts[i];
  }
  json["compared"] = {{"values", result.values}, {"launches", result.launches}};
  json["preflight"] = preflight_json(result.preflight);
  json["facts"] = facts_json(result.facts);
  json["renamed"] = renamed_json(result.renamed);
  json["findings"] = {{"base", findings_json(result.base_findings)},
                      {"cand", findings_json(result.cand_findings)}};
  json["incomplete"] = !result.incomplete.empty();
  json["incomplete_why"] = result.incomplete;
  json["steps"] = result.steps;
  json["step_offset"] = {{"steps", result.step_offset.steps},
                         {"why", text_or_null(result.step_offset.why)}};
  json["why_not_comparable"] = text_or_null(result.why_not_comparable);
  json["phase"] = text_or_null(phase_text(result));
  json["ranks"] = ranks_json(result.ranks);
  json["replicas"] = Json::array();
  for (const ReplicaParting& parting : result.replicas) {
    json["replicas"].push_back({{"run", parting.in_cand ? "cand" : "base"},
                                {"rank", parting.rank},
                                {"other", parting.other},
                                {"step", parting.step},
                                {"in_gradients", parting.in_gradients}});
  }
  json["ranks_by_sums"] = result.by_sums;
  json["alias_patterns"] = Json::array();
  for (const AliasDifference& one : result.alias_patterns) {
    json["alias_patterns"].push_back({{"kind", "alias-pattern-differs"},
                                      {"run", one.in_cand ? "cand" : "base"},
                                      {"rank", one.rank},
                                      {"step", one.step},
                                      {"phase", to_string(one.phase)},
                                      {"scope", one.scope},
                                      {"op", text_or_null(one.op)},
                                      {"kernel", text_or_null(one.kernel)},
                                      {"slot", one.slot},
                                      {"other", one.other}});
  }
  json["births"] = Json::array();
  for (const RecordReport& birth : result.births) {
    json["births"].push_back(record_json(birth, birth.comparison));
  }
  json["one_sided"] = one_sided_json(result.one_sided);
  json["layouts"] = layouts_json(result.wholes);
  json["other_forms"] = Json::array();
  for (const OtherForm& form : result.other_forms) {
    json["other_forms"].push_back(record_json(form.first, form.first.comparison));
    json["other_forms"].back()["values"] = form.values;
  }
  json["ignored"] = result.waived;
  json["not_read"] = Json::array();
  for (const Unread& unread : result.unread) {
    json["not_read"].push_back(
        {{"reason", to_string(unread.reason)}, {"base", unread.base}, {"cand", unread.cand}});
  }
  json["rounding_grown"] = carried_json(result.carried);
  json["per_step"] = per_step_json(result);
  json["next"] = has_next(result) ? Json(next_commands(result)) : Json::array();
  return json;
}

}  // namespace convtrace::diff
