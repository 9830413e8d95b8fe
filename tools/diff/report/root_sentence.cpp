#include "tools/diff/report/report_parts.h"

// The sentence about the root, and that about the phases before it.

#include <algorithm>
#include <cmath>

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

using tools::count_text;
using tools::escape_text;

/// @return whether inputs of the root were compared, and all of them have equal bits.
bool inputs_agree(const RootReport& root) {
  return root.record.comparison.worst_input == Class::kIdentical && inputs_were_compared(root);
}

/// @return whether the weights used for a module's output differ or were not compared; "" if equal.
std::string weights_text(const RootReport& root) {
  if (root.weights_are(Shown::kDifferent)) return "; the module's weights have other bits, too";
  if (!root.weights_are(Shown::kNotCompared)) return "";
  if (!root.weights->agreed.empty())
    return "; its weights agree " + root.weights->agreed +
           ", and were not compared at this use (--ops records what it computes with)";
  return "; the weights as it used them were not compared (--ops records what it computes with)";
}

/// A sentence about a diverged result, by the worst of its inputs.
std::string result_sentence(const RootReport& root) {
  if (!root.taken_alone.empty() && agrees(root.record.comparison.worst_input))
    return "its call takes " + escape_text(root.taken_alone) +
           " alone; what both runs give it agrees, the result does not";
  switch (root.record.comparison.worst_input) {
    case Class::kIdentical:
      return inputs_agree(root)
                 ? (root.weights_are(Shown::kEqual) ? "inputs and weights agree" : "inputs agree") +
                       (", the result does not" + weights_text(root))
                 : "the result diverges; what it was made of was not compared";
    case Class::kBitDifference:
      return "the result diverges; an input has other bits, but only its hash was recorded";
    case Class::kOtherForm:
      return "the result diverges; some of what it was made of has another shape in the other run";
    case Class::kWithinNoise:
      return "inputs agree within rounding, the result does not" + weights_text(root);
    case Class::kSuspicious:
      return "inputs differ by rounding that grew, the result by more than that explains";
    default: return "values diverge; their inputs were already drifting apart";
  }
}

/// The value was right when one module returned it, and wrong when the next one took it.
std::string between_sentence(const RootReport& root) {
  const RecordReport& in = *root.came_in;
  constexpr std::string_view kParameter = "parameter ";
  if (root.known_as.starts_with(kParameter) && in.slot == root.record.slot)
    return escape_text(root.known_as) +
           " had other bits when the op took it, and no recorded value before it diverges: look at "
           "what writes it between its update and this use";
  const std::string text = escape_text(in.slot) +
                           " differed already when it came in, and no recorded value before it "
                           "diverges: the code ";
  const std::string where = root.agreed_before
                                ? "between " + scope_text(root.agreed_before->scope) +
                                      ", whose output agrees, and this call"
                                : "in front of this call, outside any module,";
  return text + where + " makes the difference";
}

bool is_shown(const RootReport& root, format::Phase phase, Shown shown) {
  return root.before[index_of(phase)] == shown;
}

/// @return the compared values that agree in the two phases before the root's: "forward and loss
/// agree, the gradients do not".
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

/// @return the meaning of a root in its phase, given the values compared before it.
std::string meaning_of_root(const RootReport& root) {
  switch (root.record.phase) {
    case format::Phase::kData:
      return root.other_inputs_agree
                 ? "one input differs and another one agrees: look at the code that makes it, "
                   "before "
                   "the first module"
                 : "the data differ: look at what makes them (the loader, its seed and order, code "
                   "before the first module)";
    case format::Phase::kForward:
      return std::string("the forward pass differs, ") +
             (is_shown(root, format::Phase::kData, Shown::kEqual) ? "on equal data"
              : is_shown(root, format::Phase::kData, Shown::kDifferent)
                  ? "on data that differ"
                  : "on data that were not compared");
    case format::Phase::kLoss:
      return agreement_before(root, "the loss", true) +
             (is_shown(root, format::Phase::kForward, Shown::kEqual)
                  ? ": look at what makes the loss of the model's output: the loss function, its "
                    "scale, its targets"
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
    case format::Phase::kTuning: return "";  // belongs to no step
  }
  return "";
}

}  // namespace

std::string root_sentence(const RootReport& root) {
  const RecordReport& record = root.record;
  if (!root.setting.empty()) return "a setting differs: " + escape_text(root.setting);
  if (!root.only_in.empty()) {
    return "only the " + root.only_in + " has this gradient: in the other run nothing flows back " +
           "to the parameter, although its module was called";
  }
  if (!root.written.empty()) return escape_text(root.written);
  if (root.weights_differ) return "weights differ before step " + std::to_string(record.step);
  if (root.is_other_memory)
    return "the op takes " + escape_text(root.known_as) + ": look at which tensors it is given";
  switch (record.comparison.verdict) {
    case Class::kChangedBetween:
      if (!record.op.empty() && root.consumer->op == record.op &&
          root.consumer->scope == record.scope)
        return std::string("it was right when the op began, and the op wrote it in the ") +
               (root.changed_in_cand ? "candidate" : "baseline") + " alone";
      return std::string("its value was right when it was made, but changed in the ") +
             (root.changed_in_cand ? "candidate" : "baseline") + " before " +
             scope_text(root.consumer->scope) + " used it";
    case Class::kNanBorn: return "NaN or Inf appears in one run only";
    case Class::kShapeOrDtypeMismatch:
      return "the runs compute another " + std::string(to_string(record.comparison.field)) +
             " here";
    default: break;
  }
  if (record.phase == format::Phase::kData && !root.came_in)
    return root.other_inputs_agree ? "another input of the call agrees, this one does not"
                                   : "the runs were given different data";
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
  std::string step = "step " + std::to_string(record.step) + ": ";
  if (!result.root->setting.empty()) return step + escape_text(result.root->setting);
  const auto summary = std::ranges::find_if(result.summaries, [&record](const StepSummary& one) {
    return one.step == record.step && one.rank == record.rank;
  });
  if (summary != result.summaries.end() && summary->base_passes != summary->cand_passes)
    step += passes_text(summary->base_passes, summary->cand_passes) + "; ";
  if (result.cause && result.cause->rule == "scaled-gradient")
    return step + agreement_before(*result.root, "the gradients", false) +
           ": look at what scales the loss or its gradients";
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
           (record.step == 0 && !(result.cause && result.cause->rule == "initialization")
                ? "the seed, and at "
                : "") +
           "what was loaded";
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
  if (record.phase == format::Phase::kEvaluation && record.slot.starts_with("input:"))
    return step + "evaluation was given other data: look at what is evaluated";
  if (result.root->made_by)
    return step + agreement_before(*result.root, "the gradients", false) + ": look at " +
           escape_text(makers_text(*result.root->made_by));
  if (record.phase == format::Phase::kEvaluation && inputs_agree(*result.root) && !result.cause &&
      !result.root->weights_are(Shown::kEqual))
    return step + meaning_of_root(*result.root) +
           ": look at weights that no optimizer sets (a target network, an average)";
  return step + meaning_of_root(*result.root);
}

}  // namespace convtrace::diff
