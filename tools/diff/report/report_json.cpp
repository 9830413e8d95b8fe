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
using tools::json_list;
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
  for (size_t i = 0; i < kWithin.size(); ++i)
    json["within"][tools::number_text(kWithin[i])] = e.within[i];
  json["ulps"] = e.has_ulps ? Json(e.ulps) : Json();
  json["first"] = Json();
  if (e.first) {
    json["first"] = {{"index", *e.first},
                     {"base", tools::json_number(e.first_base)},
                     {"cand", tools::json_number(e.first_cand)}};
  }
  return json;
}

Json record_json(const RecordReport& record, const Comparison& numbers) {
  Json json = place_json(record);
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

Json value_json(const RecordReport& record) { return record_json(record, record.comparison); }

Json one_sided_json(const OneSided& one_sided) {
  if (one_sided.count == 0) return {};
  Json json = place_json(one_sided.first);
  json["count"] = one_sided.count;
  json["in"] = one_sided.in_cand ? "cand" : "base";
  return json;
}

Json region_json(const RegionPlace& region) {
  if (region.calls.empty()) return {};
  const auto call_json = [](const RegionCall& call) {
    return Json{{"scope", call.scope},
                {"op", call.op},
                {"kernel", text_or_null(call.kernel)},
                {"dropped_write", call.unchanged}};
  };
  return {{"name", text_or_null(region.name)},
          {"border_equal", region.border_equal},
          {"calls", json_list(region.calls, call_json)}};
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
  json["gradients"] = json_list(root->gradients, [](const RecordReport& gradient) {
    return Json{{"scope", gradient.scope},
                {"slot", gradient.slot},
                {"class", to_string(gradient.comparison.verdict)},
                {"z", number_or_null(gradient.comparison.z)},
                {"norm",
                 {{"base", tools::json_number(gradient.base.stats.l2)},
                  {"cand", tools::json_number(gradient.cand.stats.l2)}}}};
  });
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
    json["consumer"] = value_json(*root->consumer);
    json["effect"] = root->effect ? value_json(*root->effect) : Json();
  }
  return json;
}

Json finding_json(const FindingReport& finding) {
  Json json = place_json(finding);
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

Json summary_json(const StepSummary& s) {
  const auto number = [](const std::optional<double>& value) {
    return value ? tools::json_number(*value) : Json();
  };
  const auto norm = [](uint64_t gradients, double squares) {
    return gradients == 0 ? Json() : tools::json_number(std::sqrt(squares));
  };
  const uint64_t updates = s.base_updates + s.cand_updates > 0 ? 1 : 0;
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
          {"update_norm",
           {{"base", norm(updates, s.base_updates)}, {"cand", norm(updates, s.cand_updates)}}},
          {"class", to_string(*std::ranges::max_element(s.worst))}};
}

/// @return the result of a rank by itself. Whether the runs can be compared is decided for all
/// ranks together.
Json rank_json(const RankReport& rank) {
  Json root;
  if (rank.root) {
    const RecordReport& record = rank.root->record;
    root = place_json(record);
    root.erase("rank");
    root["kernel"] = text_or_null(record.kernel);
    root["class"] = to_string(record.comparison.verdict);
  }
  return {{"rank", rank.rank},
          {"verdict", to_string(rank.root ? Verdict::kDiverged : Verdict::kSame)},
          {"values", rank.values},
          {"root", root},
          {"received", rank.received}};
}

Json carried_json(const Carried& carried) {
  if (!carried.first) return {};
  return {{"count", carried.count},
          {"largest", tools::json_number(carried.largest)},
          {"first", place_json(*carried.first)}};
}

Json group_json(const OneSidedGroup& group) {
  return {{"in", group.in_cand ? "cand" : "base"},
          {"rank", group.rank},
          {"phase", to_string(group.phase)},
          {"scope", group.scope},
          {"op", text_or_null(group.op)},
          {"kernel", text_or_null(group.kernel)},
          {"slot", group.slot},
          {"values", group.values},
          {"first_step", step_json(group.first_step)}};
}

Json layouts_json(const std::optional<Wholes>& wholes) {
  if (!wholes) return {};
  const auto apart_json = [](const ApartValue& value) {
    return Json{{"phase", to_string(value.phase)},
                {"scope", value.scope},
                {"op", text_or_null(value.op)},
                {"slot", value.slot},
                {"values", value.values},
                {"first_step", step_json(value.first_step)},
                {"why", value.why}};
  };
  return {{"base_ranks", wholes->base_ranks},
          {"cand_ranks", wholes->cand_ranks},
          {"values_summed", wholes->summed},
          {"values_not_compared", wholes->apart.values},
          {"not_compared", json_list(wholes->apart.list, apart_json)}};
}

/// About the compared values; null if they diverge, or if there are none.
Json agreement_json(const DiffResult& result) {
  if (result.verdict == Verdict::kDiverged || result.verdict == Verdict::kNotComparable) return {};
  return is_identical(result) ? "identical" : "rounding";
}

Json renamed_json(const RenamedModule& module) {
  return {{"base", module.base},
          {"cand", module.cand},
          {"confidence", tools::json_number(module.confidence)}};
}

Json preflight_json(const PreflightEntry& entry) {
  return {{"name", entry.name},
          {"base", entry.base ? Json(*entry.base) : Json()},
          {"cand", entry.cand ? Json(*entry.cand) : Json()},
          {"meaning", text_or_null(std::string(meaning_of(entry).text))}};
}

Json fact_json(const FactDifference& fact) {
  return {{"kind", to_string(fact.kind)},
          {"name", fact.name},
          {"base", fact.base ? Json(*fact.base) : Json()},
          {"cand", fact.cand ? Json(*fact.cand) : Json()},
          {"rank", fact.rank},
          {"step", fact.step},
          {"scope", fact.scope},
          {"first", fact.first},
          {"module_class", text_or_null(fact.module_class)},
          {"modules", fact.modules},
          {"parameters", fact.parameters.size()},
          {"lines", fact.lines},
          {"configuration", fact.configuration}};
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

Json per_step_json(const DiffResult& result) { return json_list(result.summaries, summary_json); }

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
    brief.place = place_json(root.record);
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
    brief.place = place_json(*found);
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
  for (size_t i = 0; i < kClassCount; ++i)
    json["counts"][std::string(to_string(static_cast<Class>(i)))] = result.counts[i];
  json["compared"] = {{"values", result.values}, {"launches", result.launches}};
  json["preflight"] = json_list(result.preflight, preflight_json);
  json["facts"] = json_list(result.facts, fact_json);
  json["renamed"] = json_list(result.renamed, renamed_json);
  json["findings"] = {{"base", json_list(result.base_findings.list, finding_json)},
                      {"cand", json_list(result.cand_findings.list, finding_json)}};
  json["incomplete"] = !result.incomplete.empty();
  json["incomplete_why"] = result.incomplete;
  json["steps"] = result.steps;
  json["step_offset"] = {{"steps", result.step_offset.steps},
                         {"why", text_or_null(result.step_offset.why)}};
  json["why_not_comparable"] = text_or_null(result.why_not_comparable);
  json["phase"] = text_or_null(phase_text(result));
  json["ranks"] = json_list(result.ranks, rank_json);
  json["replicas"] = json_list(result.replicas, [](const ReplicaParting& parting) {
    return Json{{"run", parting.in_cand ? "cand" : "base"},
                {"rank", parting.rank},
                {"other", parting.other},
                {"step", parting.step},
                {"in_gradients", parting.in_gradients}};
  });
  json["ranks_by_sums"] = result.by_sums;
  json["alias_patterns"] = json_list(result.alias_patterns, [](const AliasDifference& one) {
    return Json{{"kind", "alias-pattern-differs"},
                {"run", one.in_cand ? "cand" : "base"},
                {"rank", one.rank},
                {"step", one.step},
                {"phase", to_string(one.phase)},
                {"scope", one.scope},
                {"op", text_or_null(one.op)},
                {"kernel", text_or_null(one.kernel)},
                {"slot", one.slot},
                {"other", one.other}};
  });
  json["births"] = json_list(result.births, value_json);
  json["one_sided"] = json_list(result.one_sided, group_json);
  json["layouts"] = layouts_json(result.wholes);
  json["other_forms"] = Json::array();
  for (const OtherForm& form : result.other_forms) {
    json["other_forms"].push_back(value_json(form.first));
    json["other_forms"].back()["values"] = form.values;
  }
  json["other_ops"] = json_list(result.rewritten, [](const RewrittenModule& module) {
    return Json{{"scope", module.scope},
                {"phase", to_string(module.phase)},
                {"base", module.base},
                {"cand", module.cand}};
  });
  json["ignored"] = result.waived;
  json["not_read"] = json_list(result.unread, [](const Unread& unread) {
    return Json{{"reason", to_string(unread.reason)}, {"base", unread.base}, {"cand", unread.cand}};
  });
  json["rounding_grown"] = carried_json(result.carried);
  json["per_step"] = per_step_json(result);
  json["next"] = has_next(result) ? Json(next_commands(result)) : Json::array();
  return json;
}

}  // namespace convtrace::diff
