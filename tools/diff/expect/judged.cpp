#include "tools/diff/expect/judged.h"

#include <algorithm>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/facts/fact_groups.h"
#include "tools/diff/report/report_parts.h"
#include "tools/trace/model/slot.h"

namespace convtrace::diff {
namespace {

constexpr size_t kFewestSteps = 5;  // whose times are compared
constexpr size_t kMostText = 200;

using tools::counted;

/// "step 2, forward, h.0: output:0".
std::string value_text(const RecordReport& record) {
  return place_text(record, false) + ": " + object_text(record);
}

/// @return the hashes of a run's code by name: "model.py", "model.py: class A".
std::map<std::string, std::string> code_of(const TraceSet& set) {
  std::map<std::string, std::string> code;
  for (const TraceFile& file : set.files)
    for (const auto& [name, value] : file.meta.facts)
      if (std::string code_of_fact = code_name(name); !code_of_fact.empty())
        code.emplace(std::move(code_of_fact), value);
  return code;
}

/// @return whether a pattern matches "model.py: class A", or its file.
bool names_code(const settings::Pattern& pattern, std::string_view name) {
  return pattern.matches(name) || pattern.matches(name.substr(0, name.find(':')));
}

bool is_of_torch(std::string_view op) { return op.starts_with("aten::"); }

/// @return whether the run recorded ops of PyTorch itself.
bool records_ops(const TraceSet& set) {
  return std::ranges::all_of(set.files, [](const TraceFile& file) {
    return !file.meta.fact("setting.CONVTRACE_OPS").value_or("").empty();
  });
}

/// @return the median time of a step in ns, from the starts of steps that follow each other.
std::optional<double> median_step(const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& starts) {
  std::vector<uint64_t> times;
  for (auto next = starts.begin(), at = next; at != starts.end(); at = next) {
    if (++next == starts.end()) break;
    const auto [rank, step] = at->first;
    if (next->first == std::pair(rank, step + 1) && next->second > at->second)
      times.push_back(next->second - at->second);
  }
  if (times.size() < kFewestSteps) return std::nullopt;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return static_cast<double>(*middle);
}

std::string percent_text(double share) { return tools::number_text(share * 100, 3) + " %"; }

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
  const auto began = [&record](Starts& starts, uint64_t t_ns) {
    const auto [at, is_new] = starts.try_emplace({record.rank, record.step}, t_ns);
    if (!is_new) at->second = std::min(at->second, t_ns);
  };
  const Class verdict = record.comparison.verdict;
  if (record.comparison.waived || is_evidence(role_of(record.slot), verdict)) return;
  if (record.step != format::kNoStep) {
    if (in_base) began(base_starts_, record.base.t_ns);
    if (in_cand) began(cand_starts_, record.cand.t_ns);
    if (in_cand) steps_.insert(record.step);
  }
  const bool both = in_base && in_cand;
  differs_ |= !both || verdict != Class::kIdentical;
  for (size_t i = 0; i < tallies_.size(); ++i) {
    const Where& where = contract_.clauses[i].where;
    const bool named = where.has_scope(record.scope) ||
                       (!record.cand_scope.empty() && where.has_scope(record.cand_scope));
    if (!named || !where.has_phase(record.phase) || !where.steps.contains(record.step) ||
        (where.op && !where.op->matches(record.op)) ||
        (where.slot && !where.slot->matches(record.slot)))
      continue;
    Tally& tally = tallies_[i];
    if (in_cand) {
      tally.steps.insert(record.step);
      if (!tally.first_in_cand) tally.first_in_cand = record;
    }
    if (!both) {
      ++(in_base ? tally.base_only : tally.cand_only);
      if (!tally.first_one_sided) tally.first_one_sided = record;
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

JudgedClause ContractRows::unchanged(const Clause& clause, const Tally& tally,
                                     const DiffResult& result) const {
  JudgedClause judged{.clause = &clause};
  const uint64_t unequal =
      clause.to_the_bit ? tally.beyond + tally.rounding + tally.unknown : tally.beyond;
  const auto& first = clause.to_the_bit ? tally.first_unequal : tally.first_beyond;
  if (unequal != 0 && first) {
    judged.kept = Kept::kBroken;
    judged.place = *first;
    judged.text = tools::count_text(unequal) + " of " + counted(tally.compared(), "value") +
                  (unequal == 1 ? " differs" : " differ") + ", the first: " + value_text(*first);
    const std::string by = difference_text(first->comparison);
    if (!by.empty()) judged.text += ", by " + by;
    return judged;
  }
  judged.text = counted(tally.compared(), "value") + " agree";
  if (tally.compared() == 1) judged.text += "s";
  if (tally.rounding != 0)
    judged.text += ", " + tools::count_text(tally.rounding) + " of them up to rounding";
  if (const uint64_t alone = tally.base_only + tally.cand_only; alone != 0)
    judged.text += "; " + tools::count_text(alone) + " more in one run alone";
  const auto cannot_tell = [&judged](const std::string& why) {
    judged.kept = Kept::kCannotTell;
    judged.text += "; " + why;
  };
  if (tally.compared() == 0) {
    judged.kept = Kept::kCannotTell;
    judged.text = tally.base_only + tally.cand_only == 0
                      ? "neither run has such a value"
                      : "no such value is in both runs, " + tools::count_text(tally.base_only) +
                            " in the baseline and " + tools::count_text(tally.cand_only) +
                            " in the candidate alone";
  } else if (tally.unknown != 0) {
    cannot_tell("of " + tools::count_text(tally.unknown) +
                " only hashes were recorded, and they differ");
  } else if (!clause.to_the_bit && result.hidden && tally.last_step >= result.hidden->step) {
    cannot_tell("from step " + std::to_string(result.hidden->step) +
                " on rounding has grown to the size of the values");
  } else if (!result.incomplete.empty() && clause.where.steps.is_all()) {
    cannot_tell(tools::escape_text(result.incomplete.front()));
  }
  return judged;
}

JudgedClause ContractRows::changed(const Clause& clause, const Tally& tally,
                                   const DiffResult& result) const {
  JudgedClause judged{.clause = &clause};
  if (clause.code) {
    for (const FactDifference& fact : result.facts) {
      if (fact.kind != FactKind::kCode || !names_code(*clause.code, fact.name)) continue;
      judged.text = tools::escape_text(fact.name) + (fact.base && fact.cand ? " has other code"
                                                     : fact.cand ? " ran in the candidate alone"
                                                                 : " ran in the baseline alone");
      return judged;
    }
    judged.kept = Kept::kBroken;
    judged.text =
        "no such code differs: the change is not in what ran, or one run had the other's code";
    return judged;
  }
  const uint64_t alone = tally.base_only + tally.cand_only;
  const uint64_t unequal =
      clause.to_the_bit ? tally.beyond + tally.rounding + tally.unknown : tally.beyond;
  if (unequal != 0 || alone != 0) {
    judged.place = unequal != 0 ? (clause.to_the_bit ? tally.first_unequal : tally.first_beyond)
                                : tally.first_one_sided;
    judged.text = tools::count_text(unequal) + " of " + counted(tally.compared(), "value") +
                  (unequal == 1 ? " differs" : " differ");
    if (alone != 0) judged.text += ", " + tools::count_text(alone) + " are in one run alone";
    judged.text += "; the first: " + value_text(*judged.place);
    return judged;
  }
  judged.kept = tally.compared() == 0 || tally.unknown != 0 ? Kept::kCannotTell : Kept::kBroken;
  judged.text = tally.compared() == 0 ? "neither run has such a value"
                : tally.unknown != 0
                    ? "only hashes of " + counted(tally.unknown, "value") +
                          " were recorded, and they differ: by how much is not known"
                    : "none of " + counted(tally.compared(), "value") + " differs" +
                          (tally.rounding != 0 ? " by more than rounding" : "");
  return judged;
}

JudgedClause ContractRows::runs(const Clause& clause, const Tally& tally,
                                const TraceSet& cand) const {
  JudgedClause judged{.clause = &clause};
  if (clause.code) {
    const auto code = code_of(cand);
    const auto found = std::ranges::find_if(
        code, [&](const auto& one) { return names_code(*clause.code, one.first); });
    if (found == code.end()) judged.kept = Kept::kBroken;
    judged.text = found != code.end()
                      ? tools::escape_text(found->first) + " ran"
                      : "no module of such a class was called, and no such file was imported";
    return judged;
  }
  const size_t all = steps_.size(), with = tally.steps.size();
  judged.place = tally.first_in_cand;
  judged.text = "in " + tools::count_text(with) + " of " + counted(all, "step");
  if (with == 0 && clause.where.op && is_of_torch(clause.where.op->text()) && !records_ops(cand)) {
    judged.kept = Kept::kCannotTell;
    judged.text = "ops of PyTorch were not recorded: --ops '*'";
  } else if (all == 0) {
    judged.kept = Kept::kCannotTell;
    judged.text = "the candidate has no step with values";
  } else if (with == 0 || (clause.each_step && with < all)) {
    judged.kept = Kept::kBroken;
    if (clause.each_step && with != 0) {
      const auto missing = std::ranges::find_if(
          steps_, [&tally](uint32_t step) { return !tally.steps.contains(step); });
      judged.text += ", not in step " + std::to_string(*missing);
    }
  }
  return judged;
}

JudgedClause ContractRows::slower(const Clause& clause) const {
  JudgedClause judged{.clause = &clause};
  const auto base = median_step(base_starts_), cand = median_step(cand_starts_);
  if (!base || !cand) {
    judged.kept = Kept::kCannotTell;
    judged.text = "fewer than " + std::to_string(kFewestSteps) + " steps follow each other";
    return judged;
  }
  const double ratio = *cand / *base - 1;
  judged.text = "a step takes " + percent_text(std::abs(ratio)) + (ratio < 0 ? " less" : " more") +
                " (medians, both traced)";
  if (ratio > *clause.slower) judged.kept = Kept::kBroken;
  return judged;
}

JudgedClause ContractRows::never(const Clause& clause, const Tally& tally, const DiffResult& result,
                                 const TraceSet& cand) const {
  if (clause.slower) return slower(clause);
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
    return judged;
  }
  const uint64_t found = tally.compared() + tally.cand_only;
  if (found != 0) {
    judged.kept = Kept::kBroken;
    judged.place = tally.first_in_cand;
    judged.text = counted(found, "value") + ", the first: " + value_text(*tally.first_in_cand);
  } else if (clause.where.op && is_of_torch(clause.where.op->text()) && !records_ops(cand)) {
    judged.kept = Kept::kCannotTell;
    judged.text = "ops of PyTorch were not recorded: --ops '*'";
  } else {
    judged.text = "the candidate has no such value";
  }
  return judged;
}

JudgedContract ContractRows::judge(const DiffResult& result, const TraceSet& base,
                                   const TraceSet& cand) const {
  JudgedContract judged;
  for (size_t i = 0; i < contract_.clauses.size(); ++i) {
    const Clause& clause = contract_.clauses[i];
    const Tally& tally = tallies_[i];
    const bool of_values = !clause.code && !clause.findings && !clause.slower;
    JudgedClause one{.clause = &clause};
    if (result.verdict == Verdict::kNotComparable && of_values &&
        clause.kind != ClauseKind::kRuns && clause.kind != ClauseKind::kNever) {
      one.kept = Kept::kCannotTell;
      one.text = "the runs cannot be compared: " + tools::escape_text(result.why_not_comparable);
    } else {
      switch (clause.kind) {
        case ClauseKind::kUnchanged:
          one = unchanged(clause, tally, result);
          break;
        case ClauseKind::kChanged:
          one = changed(clause, tally, result);
          break;
        case ClauseKind::kRuns:
          one = runs(clause, tally, cand);
          break;
        case ClauseKind::kNever:
          one = never(clause, tally, result, cand);
          break;
        case ClauseKind::kUnlike: {
          std::string what = differs_ ? "values" : "";
          for (const FactDifference& fact : result.facts)
            if (what.size() < kMostText)
              what += (what.empty() ? "" : ", ") + tools::escape_text(fact.name);
          for (const PreflightEntry& entry : result.preflight)
            if (what.size() < kMostText)
              what += (what.empty() ? "" : ", ") + tools::escape_text(entry.name);
          if (what.empty() && code_of(base) != code_of(cand)) what = "code";
          if (what.empty()) one.kept = Kept::kBroken;
          one.text = !what.empty()
                         ? "they differ in " + what
                         : "not one value, setting, package or file differs: the change did not "
                           "run, or one run had the other's code";
          break;
        }
      }
    }
    judged.clauses.push_back(std::move(one));
  }
  return judged;
}

}  // namespace convtrace::diff
