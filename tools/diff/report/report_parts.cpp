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

/// Whether inputs of the root were compared, and all of them have equal bits.
bool inputs_agree(const RootReport& root) {
  return root.record.comparison.worst_input == Class::kIdentical && inputs_were_compared(root);
}

/// Of the weights that a module's output was computed with: what is known of them but agreement.
std::string weights_text(const RootReport& root) {
  if (root.weights == Shown::kDifferent) return "; the module's weights have other bits, too";
  if (root.weights != Shown::kNotCompared) return "";
  return "; the weights as it used them were not compared (--ops records what it computes with)";
}

/// A sentence about a diverged result, by the worst of its inputs.
std::string result_sentence(const RootReport& root) {
  switch (root.record.comparison.worst_input) {
    case Class::kIdentical:
      return inputs_agree(root)
                 ? (root.weights == Shown::kEqual ? "inputs and weights agree" : "inputs agree") +
                       (", the result does not" + weights_text(root))
                 : "the result diverges; what it was made of was not compared";
    case Class::kBitDifference:
      return "the result diverges; an input has other bits, but only its hash was recorded";
    case Class::kWithinNoise:
      return "inputs agree within rounding, the result does not" + weights_text(root);
    case Class::kSuspicious:
      return "inputs differ by rounding that grew, the result by more than that explains";
    default:
      return "values diverge; their inputs were already drifting apart";
  }
}

/// The value was right when one module returned it, and wrong when the next one took it.
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
  if (!finding.kernel.empty())
    return ", kernel " + escape_text(tools::kernel_title(finding.kernel));
  return "";
}

bool is_shown(const RootReport& root, format::Phase phase, Shown shown) {
  return root.before[index_of(phase)] == shown;
}

/// What agrees in the two phases before the root's, as far as it was compared: "forward and loss agree,
/// the gradients do not".
std::string agreement_before(const RootReport& root, const std::string& subject, bool is_one) {
  using enum format::Phase;
  constexpr std::pair<format::Phase, const char*> kNames[] = {
      {kForward, "forward"}, {kLoss, "loss"}, {kBackward, "gradients"}};
  const bool behind_gradients =
      root.record.phase == kOptimizer || root.record.phase == kCommunication;
  std::string equal, missing;
  const bool of_outputs = root.parameter_gradients == Shown::kNotCompared;
  const auto add = [](std::string& names, const std::string& name) {
    names += (names.empty() ? "" : " and ") + name;
  };
  for (const auto& [phase, name] : std::span(kNames).subspan(behind_gradients ? 1 : 0)) {
    if (phase == root.record.phase) break;
    const bool is_part = phase == kBackward && of_outputs && is_shown(root, phase, Shown::kEqual);
    if (is_shown(root, phase, Shown::kEqual))
      add(equal, is_part ? "gradients of modules' outputs" : name);
    if (is_shown(root, phase, Shown::kNotCompared)) add(missing, name);
    if (is_part) add(missing, "gradients of parameters");
  }
  const bool one = equal == "forward" || equal == "loss";
  if (equal == "forward") equal = "the forward pass";
  std::string text = equal.empty()
                         ? subject + (is_one ? " differs" : " differ")
                         : equal + (one ? " agrees" : " agree") +
                               (root.rounding_enlarged ? " but for rounding that grew, " : ", ") +
                               subject + (is_one ? " does not" : " do not");
  if (!missing.empty()) text += " (" + missing + " not compared)";
  return text;
}

/// By phase: what a root in that phase means, as far as what is before it was compared.
std::string meaning_of_root(const RootReport& root) {
  switch (root.record.phase) {
    case format::Phase::kData:
      return "the data differ: look at the data loader, its seed and its order";
    case format::Phase::kForward:
      return std::string("the forward pass differs, ") +
             (is_shown(root, format::Phase::kData, Shown::kEqual) ? "on equal data"
              : is_shown(root, format::Phase::kData, Shown::kDifferent)
                  ? "on data that differ"
                  : "on data that were not compared");
    case format::Phase::kLoss:
      return agreement_before(root, "the loss", true) +
             (is_shown(root, format::Phase::kForward, Shown::kEqual) ? ": look at the loss function"
                                                                     : "");
    case format::Phase::kRecompute:
      return agreement_before(root, "what is computed again for the backward pass", true);
    case format::Phase::kBackward:
      if (root.is_after_backward())
        return agreement_before(root, "the gradients that the optimizer gets", false) +
               ": look at what changes them behind the backward pass";
      return agreement_before(root, "the gradients", false) +
             (is_shown(root, format::Phase::kLoss, Shown::kEqual) ||
                      is_shown(root, format::Phase::kForward, Shown::kEqual)
                  ? ": look at the backward pass"
                  : "");
    case format::Phase::kCommunication:
      return agreement_before(root, "what ranks exchange", true) +
             (root.made_of_equal ? ": look at what changes the gradient behind the backward pass"
                                 : "");
    case format::Phase::kOptimizer:
      return agreement_before(root, "the updated weights", false) +
             (!is_shown(root, format::Phase::kBackward, Shown::kEqual) ? ""
              : root.parameter_gradients == Shown::kEqual
                  ? ": look at the optimizer"
                  : ": look at the optimizer, and at what changes gradients before it");
    case format::Phase::kEvaluation:
      return std::string("what is computed without gradients differs") +
             (inputs_agree(root) ? ", on equal inputs" : "");
    case format::Phase::kTuning:
      return "";  // belongs to no step
  }
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
  constexpr std::string_view kBackward = "backward";
  return root.is_after_backward() ? text.insert(text.size() - kBackward.size(), "after ") : text;
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
  if (!record.kernel.empty()) {
    text += "kernel " + escape_text(tools::kernel_title(record.kernel)) + ", ";
  }
  return text + escape_text(record.slot);
}

std::string type_text(const RecordReport& record) {
  const std::string base = side_type(record.base);
  const std::string cand = side_type(record.cand);
  return base == cand ? base : base + " against " + cand;
}

std::string root_sentence(const RootReport& root) {
  const RecordReport& record = root.record;
  if (!root.setting.empty()) return "a setting differs: " + escape_text(root.setting);
  if (!root.only_in.empty()) {
    return "only the " + root.only_in + " has this gradient: in the other run nothing flows back " +
           "to the parameter, although its module was called";
  }
  if (!root.written.empty()) return escape_text(root.written);
  if (root.weights_differ) return "weights differ before step " + std::to_string(record.step);
  switch (record.comparison.verdict) {
    case Class::kChangedBetween:
      if (!record.op.empty() && root.consumer->op == record.op &&
          root.consumer->scope == record.scope)
        return std::string("it was right when the op began, and the op wrote it in the ") +
               (root.changed_in_cand ? "candidate" : "baseline") + " alone";
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
  if (record.phase == format::Phase::kData && !root.came_in)
    return "the runs were given different data";
  if (record.phase == format::Phase::kOptimizer) {
    const auto& [wrong, all] = root.updates;
    return (wrong > 1 ? agreement_before(root,
                                         "the updates of " + count_text(wrong) + " of " +
                                             tools::counted(all, "parameter"),
                                         false) +
                            ": this is the first"
                      : agreement_before(root, "the updated parameter", true)) +
           (root.vectors_only
                ? "; only parameters of one dimension differ (biases, norms): look at "
                  "which of them get weight decay"
                : "");
  }
  if (root.came_in) return between_sentence(root);
  if (!root.buffers.empty()) {
    const size_t more = root.buffers.size() - 1;
    return "its module began with other bits in buffer " + escape_text(root.buffers.front()) +
           (more > 0 ? " and " + count_text(more) + " more" : "");
  }
  if (root.right_unclipped)
    return "the gradient agrees before it is clipped, and differs as the optimizer got it";
  if (root.more_writes != 0)
    return "what the gradient is made of agrees; " + more_writes_text(root);
  if (root.made_of_equal)
    return escape_text(root.known_as) +
           " differs here; the forward pass and the gradient of what its module gave out agree";
  if (record.phase == format::Phase::kLoss && !inputs_were_compared(root))
    return agreement_before(root, "the loss", true);
  return result_sentence(root);
}

std::string phase_text(const DiffResult& result) {
  if (!result.root) return "";
  const RecordReport& record = result.root->record;
  const std::string step = "step " + std::to_string(record.step) + ": ";
  if (!result.root->setting.empty()) return step + escape_text(result.root->setting);
  if (!result.root->written.empty())
    return step + escape_text(result.root->record.slot) + " of " +
           escape_text(tools::module_text(record.scope)) + " was " +
           escape_text(result.root->written);
  if (const auto& offset = result.root->offset) {
    const bool is_cand = *offset < 0;
    const int64_t behind = record.step + std::abs(*offset) - 1;
    return step + "the " + (is_cand ? "candidate" : "baseline") +
           " begins with the weights of the " + (is_cand ? "baseline" : "candidate") +
           " behind its step " + std::to_string(behind) + ": compare with --step-offset " +
           std::to_string(result.step_offset.steps + *offset);
  }
  if (result.root->weights_differ) {
    return step + "the runs begin with other weights: look at " +
           (record.step == 0 ? "the seed, and at " : "") + "what was loaded";
  }
  if (record.phase == format::Phase::kData && result.root->came_in) {
    const auto& agreed = result.root->agreed_before;
    const std::string given =
        "what " + escape_text(tools::module_text(record.scope)) + " was given ";
    return step +
           (agreed ? "what " + escape_text(tools::module_text(agreed->scope)) +
                         " gave out agrees, " + given + "does not"
                   : given + "differs") +
           ": look at labels, and at code between modules";
  }
  if (!result.root->buffers.empty()) {
    return step +
           "the module began with other buffers: look at what was loaded, and at what makes them";
  }
  if (record.phase == format::Phase::kEvaluation && record.slot.starts_with("input:")) {
    return step + "evaluation was given other data: look at what is evaluated";
  }
  if (result.root->made_by)
    return step + agreement_before(*result.root, "the gradients", false) + ": look at " +
           escape_text(makers_text(*result.root->made_by));
  if (record.phase == format::Phase::kEvaluation && inputs_agree(*result.root) && !result.cause &&
      result.root->weights != Shown::kEqual)
    return step + meaning_of_root(*result.root) +
           ": look at weights that no optimizer sets (a target network, an average)";
  return step + meaning_of_root(*result.root);
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

bool inputs_were_compared(const RootReport& root) {
  return std::ranges::any_of(root.flow.sources,
                             [](const FlowStep& source) { return !source.by_order; });
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
  if (result.verdict == Verdict::kIncomplete) {
    return {"--allow-incomplete: what was compared decides."};
  }
  if (result.verdict == Verdict::kCannotTell) {
    return {std::string("What would tell: ") +
            (result.hidden->step == 0 ? ""
                                      : "runs that begin with the same bits, recorded from step 0 "
                                        "on (--steps 0-2); ") +
            "both runs in higher precision (f64 in place of f32, f32 in place of bf16), or one "
            "change at a time. What the baseline itself does from run to run is shown by: "
            "convtrace repeat -- COMMAND"};
  }
  const bool other_size =
      result.root && result.root->record.comparison.field == Field::kShape && !result.wholes;
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
  if (result.values == 0 && result.wholes && result.wholes->apart.values != 0) {
    return {"No value has one size in both runs: do they train one model on the same batches?"};
  }
  if (result.values == 0) {
    return {"Record the same steps of both runs (CONVTRACE_STEPS) with CONVTRACE_MODE=stats."};
  }
  return {"If these are the same modules under other names, say so with --map."};
}

std::string step_offset_text(const StepOffset& offset) {
  if (offset.why.empty()) return "";
  const bool in_cand = offset.steps >= 0;
  return std::string("step of the candidate = step of the baseline ") + (in_cand ? "+ " : "- ") +
         std::to_string(in_cand ? offset.steps : -offset.steps) + " (" + offset.why +
         "); steps are numbered as in the " + (in_cand ? "candidate" : "baseline");
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
