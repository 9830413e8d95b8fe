#include "tools/diff/births/written_weights.h"

#include <algorithm>
#include <unordered_set>

#include "tools/diff/births/sources.h"

namespace convtrace::diff {
namespace {

/// Whether the size of a difference to the record is known.
bool is_measured_value(const ValueRecord& record) {
  return record.capture != format::Capture::kHash &&
         format::number_class(record.dtype) == format::NumberClass::kFloat;
}

/// @return the relative difference of two records; 0 if every bit is equal.
double apart(const ValueView& a, const ValueView& b) {
  const bool equal =
      a.record.hashed_anew == b.record.hashed_anew && a.record.stats.hash == b.record.stats.hash;
  return equal ? 0 : measure(a, b).rms;
}

StepRecords one_value(uint32_t step, const ValueView& value, format::StringId slot) {
  StepRecords one;
  one.step = step;
  ValueRecord& record = append(one, value);
  record.key.slot = slot;
  record.kind = SlotKind::kParam;
  return one;
}

std::string since(const ValueRecord& record, uint32_t step) {
  const std::string number = std::to_string(step);
  if (is_update(record)) return "step " + number + "'s update";
  return (record.kind == SlotKind::kWritten ? "its use in step " : "its first use in step ") +
         number;
}

/// @return how many parameters one run alone wrote besides one, in words; "" for none.
std::string others(const StepRecords& base, const StepRecords& cand) {
  std::unordered_set<uint64_t> alone[2];
  for (const bool in_base : {true, false})
    for (const ValueRecord& record : (in_base ? base : cand).written)
      alone[in_base ? 0 : 1].insert(parameter_key(record));
  if (alone[0].empty() == alone[1].empty()) return "";
  const size_t all = std::max(alone[0].size(), alone[1].size());
  if (all == 1) return "";
  return ", as " + std::to_string(all - 1) + " other parameter" + (all == 2 ? "" : "s");
}

}  // namespace

WrittenWeights::Side::Side(const StepRecords& step, bool is_base, const ValueRecord& used_by)
    : records(step), in_base(is_base), output(used_by) {
  for (const auto* values : {&records.values, &records.written}) {
    for (const ValueRecord& record : *values) {
      const bool is_weight = record.kind == SlotKind::kParam || record.kind == SlotKind::kWritten;
      if (is_weight && is_before(record, output)) weights[parameter_key(record)].push_back(&record);
      if (record.kind == SlotKind::kOutput) called.insert(record.key.scope);
    }
  }
  for (auto& [parameter, all] : weights)
    std::ranges::sort(all, [](const auto* a, const auto* b) { return is_before(*a, *b); });
}

/// Whether a parameter is the output's module's own, or of a module inside it whose calls are not
/// recorded: one whose function is used without a call, or is part of a compiled region.
bool WrittenWeights::is_used_by(const Side& side, const ValueRecord& written) const {
  if (!is_before(written, side.output)) return false;
  const format::StringId scope = written.key.scope, user = side.output.key.scope;
  return scope == user ||
         (!side.called.contains(scope) && is_inside(names_.text(scope), names_.text(user)));
}

/// @return none where nothing is known of the parameter before the step's last record of it.
std::optional<WrittenWeights::Used> WrittenWeights::used(const Side& side,
                                                         const ValueRecord& written) const {
  const uint64_t parameter = parameter_key(written);
  const LastWeights::Held* held = last_.find(side.in_base, parameter);
  const auto found = side.weights.find(parameter);
  if (found == side.weights.end()) {
    if (held == nullptr) return std::nullopt;
    return Used{held->view(), held->view(), held->step, false};
  }
  const auto& here = found->second;
  const ValueView value = view(side.records, *here.back());
  const uint32_t step = side.records.step;
  if (here.back()->kind != SlotKind::kWritten) return Used{value, value, step, false};
  if (here.size() > 1) return Used{value, view(side.records, *here[here.size() - 2]), step, true};
  if (held == nullptr) return std::nullopt;
  return Used{value, held->view(), held->step, true};
}

/// @return none where the parameter agrees, differed as much before, or explains too little.
std::optional<WrittenWeight> WrittenWeights::compared(uint32_t step, const Used& base,
                                                      const Used& cand, double difference) const {
  if (!base.written && !cand.written) return std::nullopt;
  const auto unit = [](const ValueView& one) { return unit_roundoff(one.record.dtype); };
  for (const ValueView* value : {&base.value, &base.before, &cand.value, &cand.before})
    if (!is_measured_value(value->record)) return std::nullopt;
  const double now = apart(base.value, cand.value);
  const double allowed = kGain * std::max({apart(base.before, cand.before), unit(base.value),
                                           unit(cand.value), unit(base.before)});
  if (!(now > allowed && difference <= kGain * now)) return std::nullopt;
  const Used& writer = cand.written ? cand : base;
  const std::string_view name = names_.text(writer.value.record.tensor);
  const format::StringId slot = names_.intern("param:" + std::string(name));
  return WrittenWeight{.base = one_value(step, base.value, slot),
                       .cand = one_value(step, cand.value, slot),
                       .comparison = {.verdict = Class::kDiverged,
                                      .field = Field::kRms,
                                      .difference = now,
                                      .tolerance = allowed,
                                      .z = now / allowed,
                                      .bits_differ = true,
                                      .born = true},
                       .when = "written by the program between " +
                               since(writer.before.record, writer.step_before) + " and step " +
                               std::to_string(step) +
                               (base.written && cand.written ? ", with other values in each run"
                                : cand.written               ? ", in the candidate alone"
                                                             : ", in the baseline alone")};
}

std::optional<WrittenWeight> WrittenWeights::behind(const StepRecords& base,
                                                    const StepRecords& cand,
                                                    const ValueRecord& base_output,
                                                    const ValueRecord& cand_output,
                                                    double difference) const {
  const Side sides[] = {{base, true, base_output}, {cand, false, cand_output}};
  std::optional<WrittenWeight> best;
  for (const Side& side : sides) {
    for (const ValueRecord& written : side.records.written) {
      if (!is_used_by(side, written)) continue;
      const auto a = used(sides[0], written), b = used(sides[1], written);
      auto found = a && b ? compared(base.step, *a, *b, difference) : std::nullopt;
      if (found && (!best || found->comparison.difference > best->comparison.difference))
        best = std::move(found);
    }
  }
  if (best) best->when += others(base, cand);
  return best;
}

}  // namespace convtrace::diff
