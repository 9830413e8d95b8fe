#include "tools/diff/expect/judged.h"

#include <algorithm>
#include <cmath>

#include "reader/trace_reader.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/facts/fact_groups.h"
#include "tools/diff/report/report_parts.h"
#include "tools/trace/model/slot.h"

namespace convtrace::diff {
namespace {

constexpr size_t kFewestSteps = 5;  // whose times are compared
constexpr size_t kMostText = 200;
constexpr uint32_t kMostStepsNamed = 1U << 20U;

using tools::count_text;
using tools::counted;

/// "step 2, forward, h.0: output:0".
std::string value_text(const RecordReport& record) {
  return place_text(record, false) + ": " + object_text(record);
}

/// "3 of 12 values differ".
std::string unequal_text(uint64_t unequal, uint64_t all) {
  return count_text(unequal) + " of " + counted(all, "value") +
         (unequal == 1 ? " differs" : " differ");
}

/// @return the hashes of a run's code by name: "model.py", "model.py: class A".
std::map<std::string, std::string> code_of(const TraceSet& set) {
  std::map<std::string, std::string> code;
  for (const TraceFile& file : set.files)
    for (const auto& [name, value] : file.meta.facts)
      if (std::string of_fact = code_name(name); !of_fact.empty())
        code.emplace(std::move(of_fact), value);
  return code;
}

std::string_view file_of(std::string_view name) { return name.substr(0, name.find(": class ")); }

/// @return the first name that a pattern matches, by itself or by its file; "" if there is none.
std::string found_in(const std::map<std::string, std::string>& code,
                     const settings::Pattern& pattern) {
  for (const auto& [name, ignored] : code)
    if (pattern.matches(name) || pattern.matches(file_of(name))) return name;
  return "";
}

/// @return whether the run knows the file that a pattern names, whatever its class.
bool knows_file(const std::map<std::string, std::string>& code, const settings::Pattern& pattern) {
  const auto file = settings::Pattern::compile(file_of(pattern.text()));
  return file.ok() && !found_in(code, file.value()).empty();
}

/// @return whether an op is known to a run if it ran. Ops of PyTorch are recorded with --ops '*'
/// alone; a pattern that may be of one is not known without.
bool are_recorded(const settings::Pattern& op, const TraceSet& set) {
  const std::string_view text = op.text();
  const std::string_view space = text.substr(0, text.find("::"));
  const bool of_others = space.size() != text.size() && space != "aten" && space != "prims" &&
                         space.find_first_of("*?:.") == space.npos;
  return of_others || std::ranges::all_of(set.files, [](const TraceFile& file) {
           return file.meta.fact("setting.CONVTRACE_OPS") == std::string_view("*");
         });
}

/// Matches "aten::mul.Tensor" by "aten::mul", too.
bool matches_op(const settings::Pattern& pattern, std::string_view op) {
  const size_t dot = op.rfind('.');
  return pattern.matches(op) ||
         (dot != op.npos && op.find("::") < dot && pattern.matches(op.substr(0, dot)));
}

/// @return whether a value exists without its module being called.
bool merely_exists(const RecordReport& record) {
  const Role role = role_of(record.slot);
  return role == Role::kParameter || role == Role::kWritten || role == Role::kState ||
         is_parameter_gradient(role);
}

/// @return whether a value of one run alone says anything: the other run may have kept other
/// tensors for the same result.
bool counts_alone(const RecordReport& record) {
  const Role role = role_of(record.slot);
  return !is_other(role) && role != Role::kNeeded && role != Role::kInitialBuffer;
}

/// @return the median time of a step in ns, over steps that follow each other.
std::optional<double> median_step(const TraceSet& set) {
  std::vector<uint64_t> times;
  for (const TraceFile& file : set.files) {
    auto trace = reader::TraceReader::open(file.path, reader::OpenPolicy::kIndexOrScan);
    if (!trace.ok()) continue;
    std::optional<std::pair<uint32_t, uint64_t>> last;
    while (const format::Event* event = trace.value()->next()) {
      const auto* const step = std::get_if<format::Step>(event);
      if (step == nullptr) continue;
      if (last && step->index == last->first + 1 && step->header.t_ns > last->second)
        times.push_back(step->header.t_ns - last->second);
      last = {step->index, step->header.t_ns};
    }
  }
  if (times.size() < kFewestSteps) return std::nullopt;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return static_cast<double>(*middle);
}

JudgedClause slower(const Clause& clause, const TraceSet& base, const TraceSet& cand) {
  JudgedClause judged{.clause = &clause};
  const auto before = median_step(base), now = median_step(cand);
  if (!before || !now) {
    judged.kept = Kept::kCannotTell;
    judged.text = "fewer than " + std::to_string(kFewestSteps) + " steps follow each other";
    return judged;
  }
  const double ratio = *now / *before - 1;
  judged.text = "a step takes " + tools::number_text(std::abs(ratio) * 100, 3) + " %" +
                (ratio < 0 ? " less" : " more") + " (medians, both traced)";
  if (ratio > *clause.slower) judged.kept = Kept::kBroken;
  return judged;
}

/// @return whether a difference of the runs is one of the program, and not of where it was started.
bool is_of_program(const PreflightEntry& entry) {
  return entry.name.starts_with("version.") || entry.name.starts_with("package.");
}

}  // namespace

std::string_view to_string(Kept kept) {
  constexpr std::string_view kNames[] = {"kept", "cannot-tell", "broken"};
  return kNames[static_cast<size_t>(kept)];
}

Kept JudgedContract::kept() const {
  Kept worst = Kept::kKept;
  for (const JudgedClause& one : clauses) worst = std::max(worst, one.kept);
  return worst;
}

size_t JudgedContract::count(Kept kept) const {
  return static_cast<size_t>(std::ranges::count(clauses, kept, &JudgedClause::kept));
}

ContractRows::ContractRows(const Contract& contract)
    : contract_(contract), tallies_(contract.clauses.size()) {}

void ContractRows::row(const RecordReport& record, bool in_base, bool in_cand) {
  const Class verdict = record.comparison.verdict;
  if (is_evidence(role_of(record.slot), verdict)) return;
  const bool both = in_base && in_cand, waived = record.comparison.waived;
  const At at{record.rank, record.step};
  const std::string& in_candidate = record.cand_scope.empty() ? record.scope : record.cand_scope;
  if (in_base) {
    base_at_.insert(at);
    base_modules_.insert(record.scope);
  }
  if (in_cand) {
    cand_at_.insert(at);
    cand_modules_.insert(both ? record.scope : in_candidate);
  }
  differs_ |= both && !waived && verdict != Class::kIdentical;
  for (size_t i = 0; i < tallies_.size(); ++i) {
    const Clause& clause = contract_.clauses[i];
    const Where& where = clause.where;
    const bool of_candidate = clause.kind == ClauseKind::kRuns || clause.kind == ClauseKind::kNever;
    if (clause.code || clause.findings || clause.slower || !where.has_phase(record.phase) ||
        !where.steps.contains(record.step) ||
        !where.has_scope(of_candidate ? in_candidate : record.scope) ||
        (where.op && !matches_op(*where.op, record.op)) ||
        (where.slot && !where.slot->matches(record.slot)))
      continue;
    Tally& tally = tallies_[i];
    if (in_cand && (where.slot || !merely_exists(record))) {
      ++tally.ran;
      tally.ran_in.insert(at);
      if (!tally.first_ran) tally.first_ran = record;
    }
    if (waived || of_candidate) continue;
    if (!both) {
      if (!counts_alone(record)) continue;
      Alone& alone = tally.alone[{at, record.scope}];
      ++(in_base ? alone.base : alone.cand);
      alone.only_parameters &= merely_exists(record);
      if (!alone.first) alone.first = record;
      continue;
    }
    tally.last_step = std::max(tally.last_step, record.step);
    // kSuspicious: no larger than the rounding of what it was made of.
    const bool beyond = verdict > Class::kSuspicious;
    ++(verdict == Class::kIdentical       ? tally.identical
       : verdict == Class::kBitDifference ? tally.unknown
       : beyond                           ? tally.beyond
                                          : tally.rounding);
    if (verdict != Class::kIdentical && !tally.first_unequal) tally.first_unequal = record;
    if (beyond && !tally.first_beyond) tally.first_beyond = record;
  }
}

ContractRows::Alone ContractRows::alone_of(const Tally& tally, uint64_t& vanished) const {
  Alone all;
  for (const auto& [key, one] : tally.alone) {
    const auto& [at, module] = key;
    if (!base_at_.contains(at) || !cand_at_.contains(at)) continue;
    all.base += one.base;
    all.cand += one.cand;
    all.only_parameters &= one.only_parameters;
    if (cand_modules_.contains(module)) vanished += one.base;
    if (!all.first) all.first = one.first;
  }
  return all;
}

std::string ContractRows::gap(const Judging& of, bool both) const {
  const settings::StepSet& steps = of.clause.where.steps;
  if (steps.is_all() || of.base.files.size() != of.cand.files.size())
    return of.result.incomplete.empty() ? "" : tools::escape_text(of.result.incomplete.front());
  std::set<uint32_t> ranks;
  uint32_t last = 0;
  for (const std::set<At>* all : {&base_at_, &cand_at_}) {
    for (const At& at : *all) {
      ranks.insert(at.rank);
      if (at.step != format::kNoStep) last = std::max(last, at.step);
    }
  }
  // Of a set without an end, the steps that either run has.
  const uint32_t end = steps.contains(format::kNoStep - 1) ? last + 1 : kMostStepsNamed;
  for (uint32_t step = steps.first(); step < end; ++step) {
    if (!steps.contains(step)) continue;
    for (const uint32_t rank : ranks) {
      const At at{rank, step};
      if (cand_at_.contains(at) && (!both || base_at_.contains(at))) continue;
      return "of step " + std::to_string(step) + (both ? " not both runs have" : " it has no") +
             " values";
    }
  }
  return "";
}

JudgedClause ContractRows::unchanged(const Judging& of) const {
  const auto& [clause, tally, result, base, cand] = of;
  JudgedClause judged{.clause = &clause};
  const uint64_t unequal =
      clause.to_the_bit ? tally.beyond + tally.rounding + tally.unknown : tally.beyond;
  const auto& first = clause.to_the_bit ? tally.first_unequal : tally.first_beyond;
  if (unequal != 0 && first) {
    judged.kept = Kept::kBroken;
    judged.place = *first;
    judged.text = unequal_text(unequal, tally.compared()) + ", the first: " + value_text(*first);
    if (std::isfinite(first->comparison.difference))
      judged.text += ", by " + difference_text(first->comparison);
    return judged;
  }
  uint64_t vanished = 0;
  const Alone alone = alone_of(tally, vanished);
  judged.text = counted(tally.compared(), "value") + (tally.compared() == 1 ? " agrees" : " agree");
  if (tally.rounding != 0)
    judged.text += ", " + count_text(tally.rounding) + " of them up to rounding";
  if (alone.base + alone.cand != 0)
    judged.text += "; " + count_text(alone.base + alone.cand) + " more in one run alone";
  const auto cannot_tell = [&judged](const std::string& why) {
    judged.kept = Kept::kCannotTell;
    judged.text += "; " + why;
  };
  if (tally.compared() == 0) {
    judged.kept = Kept::kCannotTell;
    judged.text = tally.alone.empty() ? "neither run has such a value"
                                      : "no such value is in both runs, " + count_text(alone.base) +
                                            " in the baseline and " + count_text(alone.cand) +
                                            " in the candidate alone";
  } else if (tally.unknown != 0) {
    cannot_tell("of " + count_text(tally.unknown) + " only hashes were recorded, and they differ");
  } else if (!clause.to_the_bit && result.hidden && tally.last_step >= result.hidden->step) {
    cannot_tell("from step " + std::to_string(result.hidden->step) +
                " on rounding has grown to the size of the values");
  } else if (vanished != 0) {
    judged.place = alone.first;
    cannot_tell("the candidate lacks " + count_text(vanished) +
                " of modules that it has, the first: " + value_text(*alone.first));
  } else if (const std::string why = gap(of, true); !why.empty()) {
    cannot_tell(why);
  }
  return judged;
}

JudgedClause ContractRows::changed(const Judging& of) const {
  const auto& [clause, tally, result, base, cand] = of;
  JudgedClause judged{.clause = &clause};
  if (clause.code) {
    const auto ours = code_of(base), theirs = code_of(cand);
    for (const auto& [name, hash] : theirs) {
      if (!clause.code->matches(name) && !clause.code->matches(file_of(name))) continue;
      const auto other = ours.find(name);
      if (other != ours.end() && other->second == hash) continue;
      judged.text = tools::escape_text(name) +
                    (other != ours.end() ? " has other code" : " ran in the candidate alone");
      return judged;
    }
    const bool in_base = !found_in(ours, *clause.code).empty(),
               in_cand = !found_in(theirs, *clause.code).empty();
    judged.kept = in_cand ? Kept::kBroken : Kept::kCannotTell;
    judged.text =
        in_cand
            ? "no such code differs: the change is not in what ran, or one run had the other's code"
        : in_base
            ? "the candidate recorded no such code; it may have run the same from another folder"
            : "no such code was recorded in either run";
    return judged;
  }
  uint64_t vanished = 0;
  const Alone alone = alone_of(tally, vanished);
  const uint64_t unequal =
      clause.to_the_bit ? tally.beyond + tally.rounding + tally.unknown : tally.beyond;
  const bool is_alone = alone.base + alone.cand != 0;
  if (unequal != 0 || (is_alone && !alone.only_parameters)) {
    judged.place = unequal == 0        ? alone.first
                   : clause.to_the_bit ? tally.first_unequal
                                       : tally.first_beyond;
    if (tally.compared() != 0) judged.text = unequal_text(unequal, tally.compared()) + "; ";
    if (is_alone) judged.text += count_text(alone.base + alone.cand) + " in one run alone; ";
    judged.text += "the first: " + value_text(*judged.place);
    return judged;
  }
  const bool known = tally.compared() != 0 && tally.unknown == 0 && !is_alone;
  judged.kept = known ? Kept::kBroken : Kept::kCannotTell;
  judged.text = is_alone ? "one run alone has such parameters, and no call of their module"
                : tally.compared() == 0 ? "neither run has such a value in a step of both"
                : tally.unknown != 0
                    ? "only hashes of " + counted(tally.unknown, "value") +
                          " were recorded, and they differ: by how much is not known"
                    : "none of " + counted(tally.compared(), "value") + " differs" +
                          (tally.rounding != 0 ? " by more than rounding" : "");
  if (const std::string why = gap(of, true); known && !why.empty()) {
    judged.kept = Kept::kCannotTell;
    judged.text += "; " + why;
  }
  return judged;
}

JudgedClause ContractRows::runs(const Judging& of) const {
  const auto& [clause, tally, result, base, cand] = of;
  JudgedClause judged{.clause = &clause};
  if (clause.code) {
    const auto code = code_of(cand);
    const std::string found = found_in(code, *clause.code);
    if (!found.empty()) {
      judged.text = tools::escape_text(found) +
                    (file_of(found).size() == found.size() ? " was imported" : " ran");
    } else if (knows_file(code, *clause.code) || !found_in(code_of(base), *clause.code).empty()) {
      judged.kept = Kept::kBroken;
      judged.text = "no module of such a class was called";
    } else {
      judged.kept = Kept::kCannotTell;
      judged.text = "no such code was recorded in either run";
    }
    return judged;
  }
  std::set<At> steps;
  for (const At& at : cand_at_)
    if (clause.where.steps.contains(at.step) && at.step != format::kNoStep) steps.insert(at);
  const auto missing =
      std::ranges::find_if(steps, [&](const At& at) { return !of.tally.ran_in.contains(at); });
  judged.place = tally.first_ran;
  judged.text = "in " + count_text(tally.ran_in.size()) + " of " + counted(steps.size(), "step");
  const std::string why = gap(of, false);
  if (tally.ran == 0 && clause.where.op && !are_recorded(*clause.where.op, cand)) {
    judged.kept = Kept::kCannotTell;
    judged.text = "ops of PyTorch were not all recorded: --ops '*'";
  } else if (tally.ran == 0 ? why.empty() && !steps.empty()
                            : clause.each_step && missing != steps.end()) {
    judged.kept = Kept::kBroken;
    if (tally.ran != 0) judged.text += ", not in step " + std::to_string(missing->step);
  } else if ((tally.ran == 0 || clause.each_step) && (!why.empty() || steps.empty())) {
    judged.kept = Kept::kCannotTell;
    judged.text += "; " + (why.empty() ? "the candidate has no such step with values" : why);
  }
  return judged;
}

JudgedClause ContractRows::never(const Judging& of) const {
  const auto& [clause, tally, result, base, cand] = of;
  if (clause.slower) return slower(clause, base, cand);
  JudgedClause judged{.clause = &clause};
  if (clause.findings) {
    const auto is_same = [](const FindingReport& a, const FindingReport& b) {
      return a.kind == b.kind && a.op == b.op && a.kernel == b.kernel && a.scope == b.scope;
    };
    for (const FindingReport& one : result.cand_findings.list) {
      const bool is_new =
          std::ranges::none_of(result.base_findings.list,
                               [&](const FindingReport& other) { return is_same(one, other); });
      if (one.suppressed || one.level > *clause.findings || !is_new) continue;
      judged.kept = Kept::kBroken;
      judged.text = finding_title(one, true) + ": " + tools::escape_text(one.message);
      return judged;
    }
    judged.text = "no finding that the baseline lacks";
  } else if (tally.ran != 0) {
    judged.kept = Kept::kBroken;
    judged.place = tally.first_ran;
    judged.text = counted(tally.ran, "value") + ", the first: " + value_text(*tally.first_ran);
    return judged;
  } else if (clause.where.op && !are_recorded(*clause.where.op, cand)) {
    judged.kept = Kept::kCannotTell;
    judged.text = "ops of PyTorch were not all recorded: --ops '*'";
    return judged;
  } else {
    judged.text = "the candidate has no such value";
  }
  if (const std::string why = gap(of, false); !why.empty()) {
    judged.kept = Kept::kCannotTell;
    judged.text += "; " + why;
  }
  return judged;
}

JudgedClause ContractRows::different(const Judging& of) const {
  JudgedClause judged{.clause = &of.clause};
  std::string what = differs_ ? "values" : "";
  const auto add = [&what](const std::string& name) {
    if (what.size() < kMostText) what += (what.empty() ? "" : ", ") + tools::escape_text(name);
  };
  for (const FactDifference& fact : of.result.facts) add(fact.name);
  for (const PreflightEntry& entry : of.result.preflight)
    if (is_of_program(entry)) add(entry.name);
  uint64_t vanished = 0;
  for (const Tally& tally : tallies_) {
    if (!what.empty()) break;
    const Alone alone = alone_of(tally, vanished);
    if (alone.base + alone.cand != 0) add("values of one run alone");
  }
  if (what.empty() && code_of(of.base) != code_of(of.cand)) add("code");
  if (what.empty()) judged.kept = Kept::kBroken;
  judged.text = !what.empty() ? "they differ in " + what
                              : "not one value, setting, package or file differs: the change did "
                                "not run, or one run had the other's code";
  return judged;
}

JudgedContract ContractRows::judge(const DiffResult& result, const TraceSet& base,
                                   const TraceSet& cand) const {
  JudgedContract judged;
  for (size_t i = 0; i < contract_.clauses.size(); ++i) {
    const Clause& clause = contract_.clauses[i];
    const Judging of{clause, tallies_[i], result, base, cand};
    const bool compares = clause.kind == ClauseKind::kUnchanged ||
                          (clause.kind == ClauseKind::kChanged && !clause.code);
    if (compares && result.verdict == Verdict::kNotComparable) {
      judged.clauses.push_back({.clause = &clause,
                                .kept = Kept::kCannotTell,
                                .text = "the runs cannot be compared: " +
                                        tools::escape_text(result.why_not_comparable)});
      continue;
    }
    switch (clause.kind) {
      case ClauseKind::kUnchanged: judged.clauses.push_back(unchanged(of)); break;
      case ClauseKind::kChanged: judged.clauses.push_back(changed(of)); break;
      case ClauseKind::kRuns: judged.clauses.push_back(runs(of)); break;
      case ClauseKind::kNever: judged.clauses.push_back(never(of)); break;
      case ClauseKind::kUnlike: judged.clauses.push_back(different(of)); break;
    }
  }
  return judged;
}

}  // namespace convtrace::diff
