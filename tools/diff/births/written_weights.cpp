#include "tools/diff/births/written_weights.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "tools/diff/births/sources.h"

namespace convtrace::diff {
namespace {

bool is_before(const ValueRecord& a, const ValueRecord& b) {
  return std::tie(a.t_ns, a.seq) < std::tie(b.t_ns, b.seq);
}

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
  one.dims.assign(value.shape.begin(), value.shape.end());
  one.samples.assign(value.samples.begin(), value.samples.end());
  ValueRecord record = value.record;
  record.key.slot = slot;
  record.kind = SlotKind::kParam;
  record.dims_at = record.samples_at = 0;
  one.values.push_back(record);
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

void WrittenWeights::take(const StepRecords& step, bool in_base) {
  Parameters& known = in_base ? base_ : cand_;
  const auto take_one = [&](const ValueRecord& record) {
    Held& held = known[parameter_key(record)];
    held.record = record;
    held.step = step.step;
    const ValueView value = view(step, record);
    held.shape.assign(value.shape.begin(), value.shape.end());
    held.samples.assign(value.samples.begin(), value.samples.end());
  };
  for (const ValueRecord& record : step.written) take_one(record);
  for (const ValueRecord& record : step.values) {
    if (record.kind != SlotKind::kParam) continue;
    // Of a parameter written in the same step the later record counts.
    const auto found = known.find(parameter_key(record));
    if (found == known.end() || found->second.step != step.step ||
        is_before(found->second.record, record))
      take_one(record);
  }
}

/// Whether a parameter is the output's module's own, or of a module inside it whose calls are not
/// recorded: one whose function is used without a call, or is part of a compiled region.
bool WrittenWeights::is_used_by(const StepRecords& step, const ValueRecord& written,
                                const ValueRecord& output) const {
  if (!is_before(written, output)) return false;
  const format::StringId scope = written.key.scope;
  if (scope == output.key.scope) return true;
  return is_inside(names_.text(scope), names_.text(output.key.scope)) &&
         std::ranges::none_of(step.values, [&](const ValueRecord& one) {
           return one.key.scope == scope && one.kind == SlotKind::kOutput;
         });
}

/// @return none where nothing is known of the parameter before the step's last record of it.
std::optional<WrittenWeights::Used> WrittenWeights::used(const Parameters& known,
                                                         const StepRecords& step,
                                                         const ValueRecord& written,
                                                         const ValueRecord& output) {
  std::vector<const ValueRecord*> here;
  for (const auto* records : {&step.values, &step.written}) {
    for (const ValueRecord& record : *records) {
      const bool is_weight = record.kind == SlotKind::kParam || record.kind == SlotKind::kWritten;
      if (is_weight && parameter_key(record) == parameter_key(written) && is_before(record, output))
        here.push_back(&record);
    }
  }
  std::ranges::sort(here, [](const auto* a, const auto* b) { return is_before(*a, *b); });
  const auto held = known.find(parameter_key(written));
  if (here.size() + (held != known.end() ? 1 : 0) == 0) return std::nullopt;
  const auto nth = [&](size_t back) {
    return here.size() > back ? view(step, *here[here.size() - 1 - back]) : held->second.view();
  };
  const bool is_written = !here.empty() && here.back()->kind == SlotKind::kWritten;
  if (!is_written) return Used{nth(0), nth(0), here.empty() ? held->second.step : step.step, false};
  if (here.size() == 1 && held == known.end()) return std::nullopt;
  return Used{nth(0), nth(1), here.size() == 1 ? held->second.step : step.step, true};
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
  std::optional<WrittenWeight> best;
  for (const bool in_base : {true, false}) {
    const StepRecords& step = in_base ? base : cand;
    for (const ValueRecord& written : step.written) {
      if (!is_used_by(step, written, in_base ? base_output : cand_output)) continue;
      const auto a = used(base_, base, written, base_output);
      const auto b = used(cand_, cand, written, cand_output);
      auto found = a && b ? compared(base.step, *a, *b, difference) : std::nullopt;
      if (found && (!best || found->comparison.difference > best->comparison.difference))
        best = std::move(found);
    }
  }
  if (best) best->when += others(base, cand);
  return best;
}

}  // namespace convtrace::diff
