// Part of report_parts.h: sizes of differences, and texts about rounding.

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/births/births.h"
#include "tools/diff/compare/factor.h"
#include "tools/diff/facts/excuses.h"
#include "tools/diff/report/next_commands.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {
namespace {

using tools::escape_text;
using tools::number_text;

/// A percentage; a fraction if the percentage has too many zeros.
std::string percent_text(double share) {
  constexpr double kLeast = 1e-6;
  return share > 0 && share < kLeast ? number_text(share, 2) : tools::percent_text(share, 2);
}

}  // namespace

/// Norms, and means by the root of the number of elements, are no further apart than the values.
std::string_view precision_of(const Comparison& comparison) {
  if (comparison.exact || !is_measured(comparison.field)) return "exact";
  const bool bounds = comparison.field == Field::kNorm || comparison.field == Field::kMean;
  return bounds ? "at least" : "estimate";
}

std::string difference_text(const Comparison& comparison) {
  const std::string_view precision = precision_of(comparison);
  return (precision == "exact"      ? ""
          : precision == "estimate" ? "about "
                                    : "at least ") +
         percent_text(comparison.difference);
}

std::string factor_text(const RecordReport& record) {
  const auto factor =
      factor_of(record.base.stats, record.cand.stats, record.base.samples, record.cand.samples);
  if (!factor) return "";
  const std::string text = number_text(factor->value, 4) + " times the baseline";
  return factor->rest > 0
             ? "the candidate is about " + text + ", but for about " + percent_text(factor->rest)
             : "the candidate is " + text;
}

std::string factor_text(const RootReport& root) {
  if (!root.scalar_factor) return factor_text(shown_difference(root));
  return "the candidate is " + number_text(root.scalar_factor->value, 4) + " times the baseline, " +
         (root.scalar_factor->calls == 1
              ? "as all gradients of parameters are"
              : "in all " + std::to_string(root.scalar_factor->calls) + " calls of the step");
}

std::string tolerance_text(const RecordReport& record) {
  const Comparison& c = record.comparison;
  if (std::isnan(c.difference) || c.field == Field::kNone) return "";
  if (!is_measured(c.field))
    return "they differ by " + number_text(c.difference) + " in " + std::string(to_string(c.field));
  std::string text = "they differ by " + difference_text(c) + " of their size (" +
                     std::string(to_string(c.field)) + ')';
  // A value that only passed a difference on has no tolerance of its own.
  if (!std::isfinite(c.tolerance)) return text;
  text += ", tolerance used " + percent_text(c.tolerance);
  if (std::isfinite(c.z) && c.z > 0)
    text += ", of which it is " + tools::times_text(c.z) + " times";
  if (c.source > 0 && std::isfinite(c.source)) {
    text += "; what it was made of differs by about " + percent_text(c.source);
  }
  return text + "; " + number_text(c.difference) + " would have passed";
}

std::string rounding_hint(const DiffResult& result) {
  constexpr double kNear = 4;  // to a limit
  const Comparison& c = shown_difference(*result.root).comparison;
  if (c.like_rounding) {
    return "no larger than rounding, which is not allowed here: " + escape_text(result.why_exact) +
           (result.noise_given ? ""
                               : ". Whether this program repeats its bits at all is shown by: " +
                                     repeat_command(result.base_command));
  }
  if (c.verdict != Class::kDiverged || !std::isfinite(c.tolerance) || !(c.z <= kNear)) return "";
  return result.noise_given
             ? "just outside of what the --noise runs differ by: more of them would tell"
             : "near the limit of rounding: rerun with --noise OTHER_BASE (another run of the "
               "baseline)";
}

std::string carried_text(const DiffResult& result) {
  const Carried& carried = result.carried;
  if (!carried.first) return "";
  const bool one = carried.count == 1;
  return "from " + place_text(*carried.first, result.ranks.size() > 1) + ", " +
         object_text(*carried.first) + " on " + tools::counted(carried.count, "value") +
         (result.root ? " before the root" : "") + (one ? " is" : " are") +
         " further apart than the rounding of one operation explains" +
         (carried.largest > 0 ? " (at most about " + percent_text(carried.largest) + ")" : "") +
         ", but no further than what " + (one ? "it was" : "they were") +
         " made of, or the terms of a gradient's sum, explain";
}

std::vector<std::string> rounding_lines(const DiffResult& result) {
  const bool same =
      result.verdict != Verdict::kDiverged && result.verdict != Verdict::kNotComparable;
  if (!same || is_identical(result) || (!result.first_bit_difference && !result.wholes)) return {};
  std::vector<std::string> lines;
  if (result.first_bit_difference) {
    const RecordReport& first = result.first_bit_difference->record;
    lines.push_back("begins at " + place_text(first, result.ranks.size() > 1) + ", " +
                    object_text(first));
  }
  std::string causes, others;
  const auto add = [](std::string& list, const std::string& name) {
    list += (list.empty() ? "" : ", ") + escape_text(name);
  };
  const bool other_versions = std::ranges::any_of(
      result.preflight, [](const auto& entry) { return entry.name.starts_with("version."); });
  for (const PreflightEntry& entry : result.preflight) {
    // A switch that only one version has comes with that version.
    if (other_versions && entry.name.starts_with("switch.") && !(entry.base && entry.cand))
      continue;
    const Excuse excuse = meaning_of(entry).excuse;
    if (excuse != Excuse::kNone) add(excuse == Excuse::kMay ? others : causes, entry.name);
  }
  for (const FactDifference& fact : result.facts) {
    if (fact.kind == FactKind::kCode) add(causes, fact.name);
  }
  lines.push_back(!causes.empty()   ? "the runs differ in what explains it: " + causes
                  : !others.empty() ? "the runs differ in what may explain it: " + others
                                    : "nothing that was recorded of the runs explains it");
  if (const std::string grown = carried_text(result); !grown.empty()) lines.push_back(grown);
  if (const std::string hidden = hidden_text(result); !hidden.empty()) lines.push_back(hidden);
  if (result.exact) return lines;
  std::string allowed = "rounding was allowed: " + escape_text(result.why_exact);
  const uint64_t equal = result.wholes ? 0 : result.first_bit_difference->matched_before;
  if (equal > 0)
    allowed += "; the " + tools::counted(equal, "value") +
               " before it agree: if both runs should have the same bits, --exact on names this " +
               "one as the root";
  lines.push_back(std::move(allowed));
  return lines;
}

std::string hidden_text(const DiffResult& result) {
  const Allowance& allowed = result.allowance;
  if (unit_roundoff(allowed.coarsest) == 0) return "";
  if (result.hidden) {
    return "from step " + std::to_string(result.hidden->step) +
           " on a fault of any size may look the same";
  }
  // The smallest fault that would show in every tensor, relative to its size.
  const double grown = kGain * result.carried.largest;
  const double largest = std::min(1.0, std::max(allowed.value, grown));
  const auto below = [largest](double limit, const char* what) {
    return limit > largest ? ", " + percent_text(std::min(1.0, limit)) + what : "";
  };
  return (grown > allowed.value ? "a fault below about " : "a fault below ") +
         percent_text(largest) + " of a tensor's size" +
         below(allowed.gradient, " of an activation's gradient") +
         below(allowed.parameter, " of a parameter's gradient (of more where its terms cancel)") +
         ", or in few elements of a large one, would look the same in " +
         std::string(to_string(allowed.coarsest));
}

std::string other_form_text(const DiffResult& result) {
  const uint64_t values = result.counts[static_cast<size_t>(Class::kOtherForm)];
  if (values == 0) return "";
  return ", but for " + tools::counted(values, "value") +
         " in another form, of which the same was made";
}

std::vector<std::string> other_form_lines(const DiffResult& result) {
  constexpr size_t kSaid = 6;
  std::vector<std::string> lines;
  for (const OtherForm& form : result.other_forms) {
    const bool same = form.first.comparison.field == Field::kHash;
    const bool at_root = result.root && form.first.step == result.root->record.step;
    lines.push_back(
        object_text(form.first) + ": " + (same ? "other numbers, " : "") + type_text(form.first) +
        ", first at " + place_text(form.first, result.ranks.size() > 1) + " (" +
        tools::counted(form.values, "value") + (at_root ? ")" : "); what was made of it agrees"));
  }
  return shortened(std::move(lines), kSaid);
}

std::vector<std::string> unread_lines(const DiffResult& result) {
  std::vector<std::string> lines;
  for (const Unread& unread : result.unread) {
    lines.push_back(tools::counted(unread.base, "value") + " of the baseline and " +
                    tools::count_text(unread.cand) + " of the candidate (" +
                    std::string(to_string(unread.reason)) + "): a difference there is not seen");
  }
  return lines;
}

std::string waived_text(const DiffResult& result) {
  if (result.waived == 0) return "";
  const bool one = result.waived == 1;
  return tools::counted(result.waived, "value") + (one ? " differs" : " differ") + ", or " +
         (one ? "is" : "are") + " in one run alone, and " + (one ? "is" : "are") +
         " not counted (--ignore)";
}

std::vector<std::string> birth_lines(const DiffResult& result) {
  std::vector<std::string> lines;
  std::set<std::tuple<uint32_t, format::Phase, std::string, std::string>> told;  // in earlier steps
  for (const RecordReport& birth : result.births) {
    if (!told.emplace(birth.rank, birth.phase, birth.scope, birth.slot).second) continue;
    const Comparison& c = birth.comparison;
    std::string text = place_text(birth, result.ranks.size() > 1) + ", " + object_text(birth);
    if (is_measured(c.field)) {
      text += ": " + difference_text(c) + " (" + std::string(to_string(c.field)) + ") where " +
              percent_text(c.tolerance) + " is explained";
    } else {
      text += ": " + std::string(to_string(c.verdict));
    }
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace convtrace::diff
