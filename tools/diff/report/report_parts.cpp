#include "tools/diff/report/report_parts.h"

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

std::string side_type(const SideReport& side) {
  std::string text(to_string(side.dtype));
  if (side.has_shape) {
    text += " [";
    for (size_t i = 0; i < side.shape.size(); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(side.shape[i]);
    text += ']';
  } else {
    text += " x " + count_text(side.stats.count);
  }
  if (side.extent == format::Extent::kBlock) text += " (whole block)";
  return text + " on " + device_text(side.device);
}

std::string origin_text(const FindingReport& finding) {
  if (!finding.op.empty()) return ", op " + escape_text(finding.op);
  if (!finding.kernel.empty())
    return ", kernel " + escape_text(tools::kernel_title(finding.kernel));
  return "";
}

std::string call_text(const RecordReport& record) {
  return " (call " + std::to_string(record.call) + ')';
}

}  // namespace

std::string when_text(const RecordReport& record, bool with_rank) {
  std::string text = with_rank ? "rank " + std::to_string(record.rank) + ", " : "";
  text += record.step == format::kNoStep ? "unknown step" : "step " + std::to_string(record.step);
  return text + ", " + std::string(to_string(record.phase));
}

std::string when_text(const RootReport& root, bool with_rank) {
  std::string text = when_text(root.record, with_rank);
  if (root.is_after_backward())
    text.replace(text.rfind(' ') + 1, std::string::npos, "after backward");
  return text;
}

std::string scope_text(const std::string& scope) {
  return scope.empty() ? "root module" : escape_text(scope);
}

std::string place_text(const RecordReport& record, bool with_rank) {
  return when_text(record, with_rank) + ", " + scope_text(record.scope) + call_text(record);
}

std::string module_text(const RecordReport& record) {
  std::string text = std::string(to_string(record.phase)) + ", " + scope_text(record.scope);
  return record.call == 0 ? text : text + call_text(record);
}

std::string object_text(const RecordReport& record) {
  std::string text;
  if (!record.op.empty()) text += "op " + escape_text(record.op) + ", ";
  if (!record.kernel.empty())
    text += "kernel " + escape_text(tools::kernel_title(record.kernel)) + ", ";
  return text + escape_text(record.slot);
}

std::string type_text(const RecordReport& record) {
  const std::string base = side_type(record.base);
  const std::string cand = side_type(record.cand);
  return base == cand ? base : base + " against " + cand;
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
  if (result.by_sums != 0)
    lines.push_back(tools::counted(result.by_sums, "rank") +
                    " not compared with others of the run, by --ranks: their steps with equal sums "
                    "in both runs count as equal and were not read");
  return lines;
}

std::vector<std::string> shortened(std::vector<std::string> lines, size_t most) {
  if (lines.size() <= most) return lines;
  const std::string more = count_text(lines.size() - most) + " more (--json)";
  lines.resize(most);
  lines.push_back(more);
  return lines;
}

std::vector<std::string> rank_lines(const DiffResult& result) {
  constexpr size_t kSaid = 8;
  if (result.ranks.size() < 2) return {};
  std::vector<const RankReport*> parted;
  for (const RankReport& rank : result.ranks) {
    if (rank.root) parted.push_back(&rank);
  }
  std::ranges::stable_sort(parted, {}, [](const RankReport* r) {
    return std::pair(r->root->record.step, r->root->position);
  });
  std::vector<std::string> lines = {count_text(parted.size()) + " of " +
                                    tools::counted(result.ranks.size(), "rank") + " diverged"};
  for (const RankReport* rank : parted) {
    const RecordReport& record = rank->root->record;
    lines.push_back(place_text(record, true) + ", " + object_text(record) + " (" +
                    std::string(to_string(record.comparison.verdict)) +
                    (rank->received ? "; a collective brought it)" : ")"));
  }
  return shortened(std::move(lines), 1 + kSaid);
}

std::vector<std::string> alias_lines(const DiffResult& result) {
  constexpr size_t kSaid = 8;
  std::vector<std::string> lines;
  for (const AliasDifference& one : result.alias_patterns) {
    lines.push_back("alias-pattern-differs: " + one.slot + " and " + one.other + " of " +
                    (one.op.empty() ? "kernel " + one.kernel : "op " + one.op) + " in " +
                    (one.scope.empty() ? "the root module" : one.scope) + " (" +
                    std::string(to_string(one.phase)) + ") overlap in the " +
                    (one.in_cand ? "candidate" : "baseline") + ", first in step " +
                    std::to_string(one.step) + " of rank " + std::to_string(one.rank) +
                    ", and never in the other run");
  }
  return shortened(std::move(lines), kSaid);
}

std::string match_text(const RecordReport& record) {
  std::string text(to_string(record.how));
  if (record.confidence < 1)
    text += ", confidence " + tools::number_text(static_cast<double>(record.confidence), 2);
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

std::string before_text(const DiffResult& result) {
  const RootReport& root = *result.root;
  std::string text = tools::counted(root.matched_before, "value") + " matched";
  const auto& first = result.first_bit_difference;
  const bool same_steps = root.matched_in_earlier_steps > 0 && first && result.bits_unknown == 0 &&
                          first->record.step == root.record.step &&
                          root.one_sided_before.count == 0 && result.waived == 0 &&
                          result.other_forms.empty();
  if (same_steps)
    text += "; the " + count_text(root.matched_in_earlier_steps) +
            " of earlier steps are the same bit by bit";
  return text;
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

std::string title_of_cause(const DiffResult& result) {
  const FindingCause& cause = *result.cause->finding;
  const bool of_another = cause.finding.rank != result.root->record.rank;
  return finding_title(cause.finding, cause.in_cand) +
         (of_another ? ", on rank " + std::to_string(cause.finding.rank) : "");
}

std::string cause_text(const DiffResult& result) {
  if (!result.cause || result.cause->finding) return "";
  std::string text = escape_text(result.cause->text);
  for (const std::string& one : result.cause->evidence) text += " (" + escape_text(one) + ')';
  return text;
}

bool is_identical(const DiffResult& result) {
  return result.bits_unknown == 0 && result.bits_known && !result.first_bit_difference;
}

std::vector<std::string> advice(const DiffResult& result) {
  if (result.verdict == Verdict::kIncomplete)
    return {"--allow-incomplete: what was compared decides."};
  if (result.verdict == Verdict::kCannotTell) {
    const Hidden& hidden = *result.hidden;
    return {std::string("What would tell: ") +
            (hidden.judged != 0 ? "of the steps before it, these alone; of the others, "
             : hidden.step != 0 ? "runs that begin with the same bits, recorded from step 0 on "
                                  "(--steps 0-2); "
                                : "") +
            "both runs in higher precision (f64 in place of f32, f32 in place of bf16), or one "
            "change at a time."};
  }
  const bool other_size = result.root && !result.root->is_other_memory && !result.wholes &&
                          result.root->record.comparison.field == Field::kShape;
  const bool other_ranks = std::ranges::find(result.preflight, "world size",
                                             &PreflightEntry::name) != result.preflight.end();
  if (other_size && (other_ranks || result.ranks.size() > 1)) {
    return {
        "--layouts whole: if the runs divide their tensors among ranks in two ways, what the ranks "
        "of each hold is put together. Give the folders with the traces of all ranks."};
  }
  if (result.verdict != Verdict::kNotComparable) return {};
  if (result.values == 0 && result.launches != 0) {
    return {
        "Both runs hold launches without values. Record both again with CONVTRACE_MODE=stats (the "
        "default), or give raw kernels a rule in the file of CONVTRACE_CONFIG:",
        "[[rule]]", "kernel = \"*\"  # better: a pattern over the kernels in doubt",
        "outputs = \"auto\"", "capture = \"stats\""};
  }
  if (result.values == 0 && result.wholes && result.wholes->apart.values != 0)
    return {"No value has one size in both runs: do they train one model on the same batches?"};
  if (result.values == 0)
    return {"Record the same steps of both runs (convtrace run --like BASE), with mode stats."};
  return {"If these are the same modules under other names, say so with --map."};
}

std::string step_offset_text(const StepOffset& offset) {
  if (offset.why.empty()) return "";
  const bool in_cand = offset.steps >= 0;
  return std::string("step of the candidate = step of the baseline ") + (in_cand ? "+ " : "- ") +
         std::to_string(in_cand ? offset.steps : -offset.steps) + " (" + offset.why +
         "); steps are numbered as in the " + (in_cand ? "candidate" : "baseline") +
         ", whose steps before " + std::to_string(std::abs(offset.steps)) + " are not compared";
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
