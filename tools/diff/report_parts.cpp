#include "tools/diff/report_parts.h"

#include <algorithm>
#include <cmath>

#include "tools/common/element.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

using tools::count_text;
using tools::device_text;
using tools::escape_text;
using tools::number_text;

std::string scope_text(const std::string& scope) {
  return scope.empty() ? "root module" : escape_text(scope);
}

std::string side_type(const SideReport& side) {
  std::string text(to_string(side.dtype));
  if (side.has_shape) {
    text += " [";
    for (size_t i = 0; i < side.shape.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(side.shape[i]);
    }
    text += ']';
  } else {
    text += " x " + count_text(side.stats.count);
  }
  if (side.extent == format::Extent::kBlock) text += " (whole block)";
  return text + " on " + device_text(side.device);
}

bool is_measured(const SideReport& side) { return side.capture != format::Capture::kHash; }

std::string wide_text(format::DType dtype, format::WideScalar value) {
  return format::number_class(dtype) == format::NumberClass::kFloat
             ? number_text(value.as_f64(), 9)
             : tools::wide_integer_text(value);
}

std::string samples_text(const SideReport& side) {
  std::string text;
  for (size_t i = 0; i < side.samples.size() && i < 4; ++i) {
    text += (i == 0 ? "" : " ") + number_text(side.samples[i], 5);
  }
  return side.samples.size() > 4 ? text + " ..." : text;
}

/// Nine digits tell any two f32 numbers apart.
std::vector<std::string> stat_texts(const SideReport& side) {
  if (!is_measured(side)) return std::vector<std::string>(kMeasuredFields + 1);
  const format::Stats& s = side.stats;
  const format::DType dtype = side.dtype;
  return {number_text(s.mean, 9),
          number_text(s.std, 9),
          wide_text(dtype, s.l1),
          number_text(s.l2, 9),
          number_text(tools::extreme_as_double(dtype, s.min), 9),
          number_text(tools::extreme_as_double(dtype, s.max), 9),
          number_text(tools::magnitude_as_double(dtype, s.amax), 9),
          samples_text(side),
          count_text(s.nan) + " / " + count_text(s.pos_inf + s.neg_inf)};
}

/// Place of a component in a tensor of that shape, "[2, 17]".
std::string index_text(const SideReport& side, uint64_t index) {
  std::string text;
  uint64_t element = index * tools::component_bytes(side.dtype) / format::element_bytes(side.dtype);
  for (auto extent = side.shape.rbegin(); extent != side.shape.rend(); ++extent) {
    if (*extent == 0) return std::to_string(index);
    text = std::to_string(element % *extent) + (text.empty() ? "" : ", ") + text;
    element /= *extent;
  }
  return text.empty() ? std::to_string(index) : '[' + text + ']';
}

/// What to say of a result that diverged, by the worst of its inputs.
std::string result_sentence(Class worst_input) {
  switch (worst_input) {
    case Class::kIdentical:
      return "inputs agree, the result does not";
    case Class::kBitDifference:
      return "the result diverges; an input has other bits, but only its hash was recorded";
    case Class::kWithinNoise:
      return "inputs agree within rounding, the result does not";
    default:
      return "values diverge; their inputs were already drifting apart";
  }
}

/// The value was right when a module gave it and other when the next one took it.
std::string between_sentence(const RootReport& root) {
  const RecordReport& in = *root.came_in;
  std::string text = escape_text(in.slot) +
                     " had other bits already when it came in, and no recorded "
                     "value before it diverges: look ";
  if (!root.agreed_before) return text + "at what makes it, outside any module";
  return text + "between " + scope_text(root.agreed_before->scope) + " and " +
         scope_text(in.scope) + ", at code that is in no module";
}

std::string origin_text(const FindingReport& finding) {
  if (!finding.op.empty()) return ", op " + escape_text(finding.op);
  if (!finding.kernel.empty()) return ", kernel " + escape_text(tools::demangled(finding.kernel));
  return "";
}

}  // namespace

std::string place_text(const RecordReport& record, bool with_rank) {
  std::string text = with_rank ? "rank " + std::to_string(record.rank) + ", " : "";
  text += record.step == format::kNoStep ? "unknown step" : "step " + std::to_string(record.step);
  text += ", " + std::string(to_string(record.phase)) + ", " + scope_text(record.scope);
  return text + " (call " + std::to_string(record.call) + ')';
}

std::string object_text(const RecordReport& record) {
  std::string text;
  if (!record.op.empty()) text += "op " + escape_text(record.op) + ", ";
  if (!record.kernel.empty()) {
    text += "kernel " + escape_text(tools::demangled(record.kernel)) + ", ";
  }
  return text + escape_text(record.slot);
}

std::string type_text(const RecordReport& record) {
  const std::string base = side_type(record.base);
  const std::string cand = side_type(record.cand);
  return base == cand ? base : base + " against " + cand;
}

std::vector<StatRow> stat_rows(const RecordReport& record) {
  std::vector<StatRow> rows;
  const std::vector<std::string> base = stat_texts(record.base);
  const std::vector<std::string> cand = stat_texts(record.cand);
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i].empty() && cand[i].empty()) continue;
    const auto field = static_cast<Field>(i);
    const std::string name(field == Field::kNonFinite ? "nan / inf" : to_string(field));
    rows.push_back({name, base[i], cand[i], field == record.comparison.field});
  }
  rows.push_back({"hash", tools::hex_text(record.base.stats.hash),
                  tools::hex_text(record.cand.stats.hash),
                  record.comparison.field == Field::kHash});
  return rows;
}

std::string root_sentence(const RootReport& root) {
  const RecordReport& record = root.record;
  if (root.weights_differ) return "weights differ before step 0";
  switch (record.comparison.verdict) {
    case Class::kChangedBetween:
      return std::string("its value was right when it was made, but changed in the ") +
             (root.changed_in_cand ? "candidate" : "baseline") + " before " +
             scope_text(root.consumer->scope) + " used it";
    case Class::kNanBorn:
      return "NaN or Inf appears in one run only";
    case Class::kShapeOrDtypeMismatch:
      return "the runs compute another " + std::string(to_string(record.comparison.field)) +
             " here";
    default:
      break;
  }
  if (record.phase == format::Phase::kData) return "the runs were given different data";
  if (record.phase == format::Phase::kOptimizer) {
    return std::string("gradients agree, the updated parameter does not") +
           (root.vectors_only
                ? "; only parameters of one dimension differ (biases, norms): look at "
                  "which of them get weight decay"
                : "");
  }
  if (root.came_in) return between_sentence(root);
  return result_sentence(root.worst_input);
}

std::vector<StepRow> step_rows(const DiffResult& result, uint32_t around) {
  std::vector<StepRow> rows;
  if (!result.root) return rows;
  const RecordReport& root = result.root->record;
  const auto text = [](const std::optional<double>& value) {
    return value ? number_text(*value, 9) : "";
  };
  const auto norm = [](const StepSummary& s, double squares) {
    return s.gradients == 0 ? "" : number_text(std::sqrt(squares), 9);
  };
  for (const StepSummary& s : result.summaries) {
    const uint32_t distance = s.step < root.step ? root.step - s.step : s.step - root.step;
    if (s.rank != root.rank || distance > around) continue;
    rows.push_back({s.rank, s.step, text(s.base_loss), text(s.cand_loss), norm(s, s.base_gradients),
                    norm(s, s.cand_gradients), *std::ranges::max_element(s.worst)});
  }
  return rows;
}

std::vector<std::string> replica_lines(const DiffResult& result) {
  std::vector<std::string> lines;
  for (const ReplicaParting& parting : result.replicas) {
    lines.push_back(
        std::string(parting.in_cand ? "candidate" : "baseline") + ": rank " +
        std::to_string(parting.rank) + " had the weights of rank " + std::to_string(parting.other) +
        " and parts from it in step " + std::to_string(parting.step) +
        (parting.in_gradients ? ", already in its gradients: they were not reduced alike"
                              : ", with equal gradients: the updates differ"));
  }
  return lines;
}

std::vector<std::string> alias_lines(const DiffResult& result) {
  constexpr size_t kSaid = 8;
  std::vector<std::string> lines;
  for (const AliasDifference& one : result.alias_patterns) {
    if (lines.size() == kSaid) {
      lines.push_back(count_text(result.alias_patterns.size() - kSaid) + " more (--json)");
      break;
    }
    lines.push_back("alias-pattern-differs: " + one.slot + " and " + one.other + " of " +
                    (one.op.empty() ? "kernel " + one.kernel : "op " + one.op) + " in " +
                    (one.scope.empty() ? "no module" : one.scope) + " (" +
                    std::string(to_string(one.phase)) + ") overlap in the " +
                    (one.in_cand ? "candidate" : "baseline") + ", first in step " +
                    std::to_string(one.step) + " of rank " + std::to_string(one.rank) +
                    ", and never in the other run");
  }
  return lines;
}

std::vector<std::string> element_lines(const RecordReport& record) {
  if (!record.elements) return {};
  const ElementReport& e = *record.elements;
  std::vector<std::string> lines;
  lines.push_back(count_text(e.differing) + " of " + count_text(e.compared) + " elements differ" +
                  (e.compared < e.count ? " (of the first, the value is larger)" : "") +
                  "; max abs " + number_text(e.max_abs) + ", max rel " + number_text(e.max_rel) +
                  ", cosine " + number_text(e.cosine, 9));
  std::string within = "within";
  for (size_t i = 0; i < kWithin.size(); ++i) {
    const double share = static_cast<double>(e.within[i]) / static_cast<double>(e.compared);
    within +=
        (i == 0 ? " " : ", ") + number_text(kWithin[i]) + ": " + number_text(100 * share, 5) + " %";
  }
  lines.push_back(within);
  if (e.has_ulps) {
    std::string ulps = "ulps";
    for (size_t i = 0; i < e.ulps.size(); ++i) {
      const bool last = i == kUlpLimits.size();
      ulps += (i == 0 ? " " : ", ") + (last ? "more" : "<=" + std::to_string(kUlpLimits[i])) +
              ": " + count_text(e.ulps[i]);
    }
    lines.push_back(ulps);
  }
  if (e.first) {
    lines.push_back("first at " + index_text(record.base, *e.first) + ": " +
                    number_text(e.first_base, 9) + " | " + number_text(e.first_cand, 9));
  }
  return lines;
}

std::string match_text(const RecordReport& record) {
  std::string text(to_string(record.how));
  if (record.confidence < 1) {
    text += ", confidence " + tools::number_text(static_cast<double>(record.confidence), 2);
  }
  if (record.cand_scope != record.scope) {
    text += "; in the candidate " + scope_text(record.cand_scope);
  }
  if (record.cand_slot != record.slot) text += ", " + escape_text(record.cand_slot);
  return text;
}

std::string renamed_text(const DiffResult& result) {
  if (result.renamed.empty()) return "";
  const RenamedModule& first = result.renamed.front();
  return tools::counted(result.renamed.size(), "module") +
         " of another name in the candidate, such as " + scope_text(first.base) + " | " +
         scope_text(first.cand) + " (--json lists all; --map says otherwise)";
}

std::string tolerance_text(const RecordReport& record) {
  const Comparison& c = record.comparison;
  if (std::isnan(c.difference) || c.field == Field::kNone) return "";
  const std::string difference = number_text(c.difference), used = number_text(c.tolerance);
  std::string text = "they differ by " + difference + " in " + std::string(to_string(c.field));
  text += std::isfinite(c.z)
              ? ", " + number_text(c.z, 3) + " times the tolerance used (" + used + ')'
              : "; tolerance used " + used;
  return text + "; " + difference + " would have passed";
}

std::string before_text(const DiffResult& result) {
  const RootReport& root = *result.root;
  std::string text = tools::counted(root.matched_before, "value") + " matched";
  const auto& first = result.first_bit_difference;
  const bool same_steps = first && root.record.step > 0 && first->record.step == root.record.step &&
                          root.one_sided_before.count == 0;
  return text + (same_steps ? "; all earlier steps are the same bit by bit" : "");
}

std::string one_sided_text(const RootReport& root) {
  const OneSided& one_sided = root.one_sided_before;
  if (one_sided.count == 0) return "";
  const bool one = one_sided.count == 1;
  return tools::counted(one_sided.count, "value") + " before it " + (one ? "is" : "are") +
         " in one run only, the first in the " + (one_sided.in_cand ? "candidate" : "baseline") +
         ": " + place_text(one_sided.first, false) + ", " + object_text(one_sided.first);
}

std::string rounding_hint(const RootReport& root, bool noise_given) {
  const Comparison& c = shown_difference(root).comparison;
  const double reach = root.rounding_enlarged ? kEnlargedReach : kRoundingReach;
  if (c.verdict != Class::kDiverged) return "";
  if (noise_given) {
    return c.z <= 2 * kSuspiciousLimit
               ? "just outside of what the --noise runs differ by: more of them would tell"
               : "";
  }
  if (!(c.z <= reach)) return "";
  return std::string("within reach of rounding") +
         (c.z > kRoundingReach ? ", of which the optimizer made more before" : "") +
         ": rerun with --noise OTHER_BASE (another run of the baseline)";
}

const RecordReport& shown_difference(const RootReport& root) {
  return root.effect ? *root.effect : root.record;
}

std::string finding_title(const FindingReport& finding, bool in_cand) {
  std::string text(to_string(finding.kind));
  text += " (" + std::string(to_string(finding.level)) + ") in the ";
  text += in_cand ? "candidate" : "baseline";
  text += finding.step == format::kNoStep ? "" : ", step " + std::to_string(finding.step);
  text += ", " + scope_text(finding.scope) + origin_text(finding);
  if (!finding.slot.empty()) text += ", " + escape_text(finding.slot);
  return text;
}

std::string headline(const DiffResult& result) {
  switch (result.verdict) {
    case Verdict::kDiverged:
      return "DIVERGED at " + place_text(result.root->record, result.ranks.size() > 1) + ": " +
             object_text(result.root->record);
    case Verdict::kNotComparable:
      return "NOT COMPARABLE: " + result.why_not_comparable;
    case Verdict::kFindings:
      return "SAME VALUES, but " +
             tools::counted(result.base_findings.errors + result.cand_findings.errors,
                            "error-level finding");
    case Verdict::kSame:
      break;
  }
  const bool identical = result.counts[static_cast<size_t>(Class::kIdentical)] == result.values;
  if (identical) return "SAME: every compared value is identical";
  const uint64_t hashes = result.counts[static_cast<size_t>(Class::kBitDifference)];
  if (hashes == 0) return "SAME: no compared value differs by more than rounding explains";
  return "SAME: no measured value differs by more than rounding explains; "
         "of " +
         tools::counted(hashes, "value") + " only the hash is known, and it differs";
}

std::vector<std::string> advice(const DiffResult& result) {
  if (result.verdict != Verdict::kNotComparable) return {};
  if (result.values == 0 && result.launches != 0) {
    return {
        "Both runs hold launches without values. Record both again with CONVTRACE_MODE=stats (the "
        "default), or give raw kernels a rule in the file of CONVTRACE_CONFIG:",
        "[[rule]]", "kernel = \"*\"  # better: a pattern over the kernels in doubt",
        "outputs = \"auto\"", "capture = \"stats\""};
  }
  if (result.values == 0) {
    return {"Record the same steps of both runs (CONVTRACE_STEPS) with CONVTRACE_MODE=stats."};
  }
  return {"If these are the same modules under other names, say so with --map."};
}

std::string compared_text(const DiffResult& result) {
  std::string text = tools::counted(result.values, "value") + " and " +
                     count_text(result.launches) +
                     (result.launches == 1 ? " launch" : " launches") + " in " +
                     tools::counted(result.steps, "step");
  std::string separator = ": ";
  for (size_t i = 0; i < kClassCount; ++i) {
    if (result.counts[i] == 0) continue;
    text += separator + count_text(result.counts[i]) + ' ' +
            std::string(to_string(static_cast<Class>(i)));
    separator = ", ";
  }
  return text;
}

}  // namespace convtrace::diff
