#include "tools/diff/births/written_weights.h"

#include <algorithm>
#include <utility>

#include "tools/diff/births/sources.h"

namespace convtrace::diff {
namespace {

/// @return the relative difference of two records; 0 if every bit is equal.
double apart(const ValueView& a, const ValueView& b) {
  const bool equal =
      a.record.hashed_anew == b.record.hashed_anew && a.record.stats.hash == b.record.stats.hash;
  return equal ? 0 : measure(a, b).rms;
}

bool differ(const ValueView& a, const ValueView& b) {
  const bool hashed_alike =
      a.record.hashed_anew == b.record.hashed_anew && !a.record.in_pieces && !b.record.in_pieces;
  return hashed_alike ? a.record.stats.hash != b.record.stats.hash : apart(a, b) != 0;
}

StepRecords one_value(uint32_t step, const ValueView& value, format::StringId slot) {
  StepRecords one;
  one.step = step;
  ValueRecord& record = append(one, value);
  record.key.slot = slot;
  record.kind = Role::kParameter;
  return one;
}

/// @return when the program wrote the parameter after its record `before`, in words.
std::string written_text(const ValueRecord& before, uint32_t step_before, uint32_t step) {
  const std::string number = std::to_string(step_before);
  const bool is_updated = is_update(before);
  if (step_before == step && !is_updated)
    return "written by the program between two uses in step " + number;
  return "written by the program between " +
         (is_updated
              ? "step " + number + "'s update"
              : (before.kind == Role::kWritten ? "its use in step " : "its first use in step ") +
                    number) +
         " and step " + std::to_string(step);
}

/// @return when a record of a parameter was made, in words.
std::string recorded_text(const ValueRecord& record, uint32_t step) {
  const std::string number = std::to_string(step);
  return is_update(record) ? "behind step " + number + "'s update"
         : record.kind == Role::kWritten
             ? "as the program wrote them before a use in step " + number
             : "at their first use in step " + number;
}

/// @return how many further parameters one run wrote more often than the other, in words; "" if
/// none.
std::string others(const StepRecords& base, const StepRecords& cand) {
  std::unordered_map<uint64_t, int> more;
  for (const ValueRecord& record : base.written) ++more[parameter_key(record)];
  for (const ValueRecord& record : cand.written) --more[parameter_key(record)];
  const auto in_base = std::ranges::count_if(more, [](const auto& one) { return one.second > 0; });
  const auto in_cand = std::ranges::count_if(more, [](const auto& one) { return one.second < 0; });
  const auto all = std::max(in_base, in_cand);
  if (std::min(in_base, in_cand) > 0 || all < 2) return "";
  return ", as " + std::to_string(all - 1) + " other parameter" + (all == 2 ? "" : "s");
}

}  // namespace

WrittenWeights::Side::Side(const StepRecords& step, bool is_base, const ValueRecord& used_by,
                           const LastWeights& last_weights)
    : records(step), in_base(is_base), output(used_by), last(last_weights) {
  for (const auto* values : {&records.values, &records.written}) {
    for (const ValueRecord& record : *values) {
      const bool is_weight = record.kind == Role::kParameter || record.kind == Role::kWritten;
      if (is_weight && is_before(record, output)) weights[parameter_key(record)].push_back(&record);
      if (record.kind == Role::kOutput) called.insert(record.key.scope);
    }
  }
  for (auto& [parameter, all] : weights)
    std::ranges::sort(all, [](const auto* a, const auto* b) { return is_before(*a, *b); });
}

size_t WrittenWeights::Side::count(uint64_t parameter) const {
  const auto found = weights.find(parameter);
  return found == weights.end() ? 0 : found->second.size();
}

std::optional<WrittenWeights::State> WrittenWeights::Side::behind(uint64_t parameter,
                                                                  size_t count) const {
  if (count > 0)
    return State{view(records, *weights.find(parameter)->second[count - 1]), records.step};
  const LastWeights::Held* held = last.find(in_base, parameter);
  return held == nullptr ? std::nullopt : std::optional(State{held->view(), held->step});
}

/// A program may write a parameter between two calls, behind a backward pass, and by an update.
bool WrittenWeights::Side::is_of_use(const State& state) const {
  const ValueRecord& record = state.value.record;
  if (state.step != records.step || is_update(record)) return false;
  return std::ranges::none_of(records.values, [&](const ValueRecord& one) {
    const bool is_earlier_use = one.kind == Role::kOutput && one.key.scope == output.key.scope;
    return (is_earlier_use || one.key.phase == format::Phase::kBackward) &&
           is_before(record, one) && is_before(one, output);
  });
}

/// @return whether the parameters in `scope` belong to the output's module, or to a module inside
/// it whose calls are not recorded: its function is used without a call, or it is part of a
/// compiled region.
bool WrittenWeights::is_used_by(const Side& side, format::StringId scope) const {
  const format::StringId user = side.output.key.scope;
  return scope == user ||
         (!side.called.contains(scope) && is_inside(names_.text(scope), names_.text(user)));
}

/// A parameter that one run recorded more often before the output was written by that run alone.
/// @return nullopt if no record of the parameter precedes the step's last one.
std::optional<WrittenWeights::Used> WrittenWeights::used(const Side& side, const Side& other,
                                                         uint64_t parameter) const {
  const size_t here = side.count(parameter), there = other.count(parameter);
  const auto now = side.behind(parameter, here);
  const bool written = here >= there && here > 0 && now->value.record.kind == Role::kWritten;
  const auto before = written ? side.behind(parameter, here == there ? here - 1 : there) : now;
  if (!now || !before) return std::nullopt;
  return Used{*now, *before, written};
}

/// @return nullopt if the parameter agrees, differed as much before, or explains too little.
std::optional<WrittenWeight> WrittenWeights::compared(uint32_t step, const Used& base,
                                                      const Used& cand, double difference) const {
  if (!base.written && !cand.written) return std::nullopt;
  const ValueView &a = base.now.value, &b = cand.now.value;
  const ValueView &a_before = base.before.value, &b_before = cand.before.value;
  const auto unit = [](const ValueView& one) { return unit_roundoff(one.record.dtype); };
  for (const ValueView* value : {&a, &a_before, &b, &b_before})
    if (!has_statistics(value->record) || !is_float(value->record)) return std::nullopt;
  const double now = apart(a, b);
  const double allowed =
      kGain * std::max({apart(a_before, b_before), unit(a), unit(b), unit(a_before)});
  if (!(now > allowed && difference <= kGain * now)) return std::nullopt;
  const State& before = (cand.written ? cand : base).before;
  const format::StringId slot = names_.intern("param:" + std::string(names_.text(a.record.tensor)));
  return WrittenWeight{.base = one_value(step, a, slot),
                       .cand = one_value(step, b, slot),
                       .comparison = {.verdict = Class::kDiverged,
                                      .field = Field::kRms,
                                      .difference = now,
                                      .tolerance = allowed,
                                      .z = now / allowed,
                                      .bits_differ = true,
                                      .born = true,
                                      .exact = measure(a, b).exact},
                       .when = written_text(before.value.record, before.step, step) +
                               (base.written && cand.written ? ", with other values in each run"
                                : cand.written               ? ", in the candidate alone"
                                                             : ", in the baseline alone")};
}

std::optional<WrittenWeight> WrittenWeights::behind(const StepRecords& base,
                                                    const StepRecords& cand,
                                                    const ValueRecord& base_output,
                                                    const ValueRecord& cand_output,
                                                    double difference) const {
  const Side sides[] = {{base, true, base_output, last_}, {cand, false, cand_output, last_}};
  std::optional<WrittenWeight> best;
  for (const Side& side : sides) {
    for (const ValueRecord& written : side.records.written) {
      if (!is_before(written, side.output) || !is_used_by(side, written.key.scope)) continue;
      const auto a = used(sides[0], sides[1], parameter_key(written));
      const auto b = used(sides[1], sides[0], parameter_key(written));
      auto found = a && b ? compared(base.step, *a, *b, difference) : std::nullopt;
      if (found && (!best || found->comparison.difference > best->comparison.difference))
        best = std::move(found);
    }
  }
  if (best) best->when += others(base, cand);
  return best;
}

std::optional<UsedWeights> WrittenWeights::shown(const StepRecords& base, const StepRecords& cand,
                                                 const ValueRecord& base_output,
                                                 const ValueRecord& cand_output) const {
  const Side sides[] = {{base, true, base_output, last_}, {cand, false, cand_output, last_}};
  std::optional<UsedWeights> all;
  bool is_missing = false;
  std::pair<uint32_t, bool> latest;  // step, and whether it is an update
  const auto add = [&](const Side& side, uint64_t parameter, format::StringId scope) {
    if (!is_used_by(side, scope)) return;
    const auto a = sides[0].behind(parameter, sides[0].count(parameter));
    const auto b = sides[1].behind(parameter, sides[1].count(parameter));
    const bool both = a && b;
    const bool is_old = both && !(sides[0].is_of_use(*a) && sides[1].is_of_use(*b));
    const Shown one = both && differ(a->value, b->value) ? Shown::kDifferent
                      : !both || is_old                  ? Shown::kNotCompared
                                                         : Shown::kEqual;
    is_missing |= !both;
    if (!all) all = {one, ""};
    if (both && is_old) {
      const State& old = sides[0].is_of_use(*a) ? *b : *a;
      const std::pair last(old.step, is_update(old.value.record));
      if (all->agreed.empty() || latest < last) {
        latest = last;
        all->agreed = recorded_text(old.value.record, old.step);
      }
    }
    const auto gravity = [](Shown of) { return of == Shown::kEqual ? -1 : static_cast<int>(of); };
    if (gravity(one) > gravity(all->bits)) all->bits = one;
  };
  for (const Side& side : sides) {
    for (const auto& [parameter, held] : last_.of(side.in_base).parameters)
      add(side, parameter, held.record.key.scope);
    for (const auto& [parameter, records] : side.weights)
      add(side, parameter, records.front()->key.scope);
  }
  if (all && (all->bits != Shown::kNotCompared || is_missing)) all->agreed.clear();
  return all;
}

}  // namespace convtrace::diff
