#include "tools/diff/cause/rules.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/common/text.h"
#include "tools/diff/compare/factor.h"
#include "tools/diff/model/name_pattern.h"

namespace convtrace::diff {
namespace {

using format::Phase;

/// @return whether `scope` is one of the fact's modules; one name pattern may stand for many.
bool is_in(const FactDifference& fact, const std::string& scope) {
  if (fact.modules == 1) return fact.scope == scope;
  return shape_of(fact.scope) == shape_of(scope) && pattern_of(fact.scope, scope) == fact.scope;
}

/// The modules around `scope`, itself first, without the root module.
std::vector<std::string> around(std::string scope) {
  std::vector<std::string> scopes = {scope};
  for (size_t dot = scope.rfind('.'); dot != std::string::npos; dot = scope.rfind('.')) {
    scope.resize(dot);
    scopes.push_back(scope);
  }
  return scopes;
}

/// Accepts facts of any rank, since a difference that several ranks share is recorded once.
bool was_before(const FactDifference& fact, const RecordReport& root) {
  return fact.step == format::kNoStep || fact.step <= root.step;
}

/// @return whether a setting of a group is for the parameter at the root, as far as that is known.
bool is_for_parameter(const FactDifference& fact, const RecordReport& root) {
  if (fact.parameters.empty() || role_of(root.slot) != Role::kParameter) return true;
  const std::string name = path_in(root.scope, std::string(name_of(root.slot)));
  return std::ranges::find(fact.parameters, name) != fact.parameters.end();
}

/// The latest difference in the settings of an optimizer up to the root.
const FactDifference* optimizer_setting(const DiffResult& result) {
  const FactDifference* found = nullptr;
  for (const FactDifference& fact : result.facts) {
    if (fact.kind == FactKind::kOptimizer && fact.configuration &&
        is_for_parameter(fact, result.root->record) && was_before(fact, result.root->record) &&
        (found == nullptr || found->step < fact.step))
      found = &fact;
  }
  return found;
}

const FactDifference* generator(const DiffResult& result) {
  const auto fact = std::ranges::find_if(result.facts, [&](const FactDifference& one) {
    return one.kind == FactKind::kGenerator && was_before(one, result.root->record);
  });
  return fact == result.facts.end() ? nullptr : &*fact;
}

bool draws_random_numbers(const RootReport& root) {
  return root.code.module_class.find("Dropout") != std::string::npos ||
         root.code.module_class.find("RReLU") != std::string::npos;
}

std::optional<Cause> by_known_setting(const DiffResult& result) {
  const RootReport& root = *result.root;
  if (root.setting.empty()) return std::nullopt;
  const auto is_root = [&root](const FactDifference& one) {
    return fact_text(one) == root.setting;
  };
  if (std::ranges::any_of(result.facts, is_root))
    return Cause{"setting", root.setting, {"no value diverges before it is used"}};
  const bool compared =
      std::ranges::any_of(root.before, [](Shown phase) { return phase != Shown::kNotCompared; });
  if (compared)
    return Cause{"setting", root.setting, {"no value before it differs by more than rounding"}};
  const auto fact = std::ranges::find_if(result.facts, [&root](const FactDifference& one) {
    return one.kind == FactKind::kModule && one.configuration && was_before(one, root.record);
  });
  if (fact != result.facts.end())
    return Cause{"setting", fact_text(*fact), {"no module's own output was compared before it"}};
  return Cause{"setting", root.setting, {"nothing of its step was compared before it"}};
}

std::optional<Cause> by_write(const DiffResult& result) {
  const RootReport& root = *result.root;
  if (root.more_writes != 0)
    return Cause{
        "written",
        (root.known_as.empty() ? root.record.slot + " of " + tools::module_text(root.record.scope)
                               : root.known_as) +
            ": " + more_writes_text(root),
        {"the forward pass and the gradient of what the module gave out agree"}};
  if (root.written.empty()) return std::nullopt;
  return Cause{
      "written",
      root.record.slot + " of " + tools::module_text(root.record.scope) + ": " + root.written,
      {"no optimizer's step wrote it, and it differs more than at its record before",
       "the first output that differs is of its module"}};
}

/// @return whether a setting affects a phase: some affect only gradients or only evaluation.
bool is_of_phase(const FactDifference& fact, Phase phase) {
  if (fact.name == "training in evaluation") return phase == Phase::kEvaluation;
  if (fact.module_class.starts_with(kOfLoss)) return phase == Phase::kLoss;
  return phase == Phase::kBackward || (fact.name != "frozen" && fact.name != "tied");
}

/// Two modules share a weight in only one run. The root is that weight's gradient, or its update if
/// no gradient was compared; or an output of the module that has a weight of its own in the other
/// run, if its weights are not known to be equal; or the weight that an op of that module takes.
std::optional<Cause> by_shared_weight(const DiffResult& result) {
  const RootReport& root = *result.root;
  const RecordReport& record = root.record;
  const Role role = role_of(record.slot);
  const bool is_gradient = is_parameter_gradient(role);
  const bool is_update = role == Role::kParameter && record.phase == Phase::kOptimizer &&
                         root.parameter_gradients == Shown::kNotCompared;
  const bool is_output = role == Role::kOutput && record.op.empty() && inputs_were_compared(root) &&
                         agrees(record.comparison.worst_input) && !root.weights_are(Shown::kEqual);
  const std::string weight = '=' + path_in(record.scope, std::string(name_of(record.slot))) + ", ";
  const auto names_it = [&weight](const std::optional<std::string>& shared) {
    return shared && (*shared + ", ").find(weight) != std::string::npos;
  };
  for (const FactDifference& fact : result.facts) {
    if (fact.name != "tied" || !was_before(fact, record)) continue;
    if ((is_gradient || is_update) && (names_it(fact.base) || names_it(fact.cand)))
      return Cause{"setting",
                   fact_text(fact),
                   {std::string("the first value that differs is that weight's ") +
                    (is_gradient ? "gradient" : "update")}};
    if (root.is_other_memory && is_in(fact, record.scope))
      return Cause{"setting", fact_text(fact), {"an op of this module takes " + root.known_as}};
    if (is_output && is_in(fact, record.scope))
      return Cause{"setting",
                   fact_text(fact),
                   {"what this module took agrees, its result does not, and its weights are not "
                    "known to be equal"}};
  }
  return std::nullopt;
}

/// @return whether the root is an output, and a fact concerns modules inside the root's module,
/// whose own outputs were not compared.
bool is_hidden_inside(const FactDifference& fact, const RootReport& root) {
  if (!root.record.slot.starts_with("output:")) return false;
  FactDifference outer = fact;
  bool found = root.record.scope.empty() && !fact.scope.empty();
  for (const std::string& scope : around(fact.scope)) {
    outer.scope = scope;
    found |= scope != fact.scope && is_in(outer, root.record.scope);
  }
  return found && std::ranges::none_of(root.compared_inside, [&](const std::string& scope) {
           return is_in(fact, scope);
         });
}

/// @return for a root of unlike types, which are not compared, how far the gradients of its step are
/// apart; "" for others.
std::string apart_beside_types(const DiffResult& result) {
  constexpr double kMany = 16;  // roundings; norms of gradients are averages of many elements
  const RecordReport& root = result.root->record;
  if (root.comparison.field != Field::kDType) return "";
  const auto step = std::ranges::find_if(result.summaries, [&root](const StepSummary& one) {
    return one.step == root.step && one.rank == root.rank && one.gradients > 0;
  });
  if (step == result.summaries.end()) return "";
  const double base = std::sqrt(step->unclipped > 0 ? step->base_unclipped : step->base_gradients);
  const double cand = std::sqrt(step->unclipped > 0 ? step->cand_unclipped : step->cand_gradients);
  const double apart = std::abs(base - cand) / std::max(base, cand);
  const double rounding = std::max(unit_roundoff(root.base.dtype), unit_roundoff(root.cand.dtype));
  if (!std::isfinite(apart) || rounding == 0) return "";
  return "norms of the gradients of step " + std::to_string(root.step) + " differ by " +
         tools::percent_text(apart) +
         (apart > kMany * rounding ? ", which another type alone does not explain: look for a "
                                     "second difference, with one type in both runs"
                                   : ", as another type may explain");
}

/// A setting of the module whose result is the root, or of the nearest module around it; or of one
/// inside, of which no more was compared.
std::optional<Cause> by_module_setting(const DiffResult& result) {
  const RecordReport& root = result.root->record;
  constexpr std::array kOfModules = {Phase::kForward, Phase::kLoss, Phase::kBackward,
                                     Phase::kEvaluation};
  if (std::ranges::find(kOfModules, root.phase) == kOfModules.end()) return std::nullopt;
  const std::string first = "the first value that differs is of ";
  const std::string module = first + tools::module_text(root.scope);
  const auto reason = [&](const auto& fits, const std::string& why) -> std::optional<Cause> {
    for (const FactDifference& fact : result.facts) {
      const bool of_loss = fact.module_class.starts_with(kOfLoss);
      // Losses that agreed in an earlier step are of functions that compute the same.
      if (fact.kind == FactKind::kModule &&
          (of_loss ? fact.step == root.step : fact.configuration) && was_before(fact, root) &&
          is_of_phase(fact, root.phase) && fits(fact)) {
        Cause cause{"setting", fact_text(fact), {of_loss ? first + "the loss" : why}};
        if (std::string apart = apart_beside_types(result); !apart.empty())
          cause.evidence.push_back(std::move(apart));
        return cause;
      }
    }
    return std::nullopt;
  };
  for (const std::string& scope : around(root.scope)) {
    const auto fits = [&](const FactDifference& fact) { return is_in(fact, scope); };
    const bool own = scope == root.scope;
    if (auto found =
            reason(fits, own ? first + "this module" : module + ", which is inside this module"))
      return found;
  }
  return reason([&](const FactDifference& fact) { return is_hidden_inside(fact, *result.root); },
                module + ", and this module is inside, whose own output was not compared");
}

/// The op takes the memory of another parameter, or the call whose result is the root takes inputs
/// in one run that the other run does not give it.
std::optional<Cause> by_other_inputs(const DiffResult& result) {
  const RootReport& root = *result.root;
  if (root.is_other_memory)
    return Cause{"other-inputs",
                 "op " + root.record.op + " takes " + root.known_as,
                 {"other records of the same memory have these names"}};
  if (root.taken_alone.empty() || !agrees(root.record.comparison.worst_input)) return std::nullopt;
  const bool agreed_with_it =
      std::ranges::any_of(result.one_sided, [&root](const OneSidedGroup& group) {
        return group.scope == root.record.scope && group.slot.starts_with("input:") &&
               group.first_step < root.record.step;
      });
  if (agreed_with_it) return std::nullopt;
  return Cause{"other-inputs",
               tools::module_text(root.record.scope) + " takes " + root.taken_alone + " alone",
               {"what both runs give it agrees"}};
}

/// @return the evidence for an optimizer setting: the first differing value is an update.
std::string update_evidence(const RootReport& root) {
  const bool agrees = std::ranges::any_of(root.flow.sources, [](const FlowStep& one) {
    return one.value.slot.starts_with("grad:") && is_match(one.value.comparison.verdict);
  });
  return std::string("the first value that differs is an update") +
         (agrees ? ", its gradient agrees" : "");
}

std::optional<Cause> by_optimizer_setting(const DiffResult& result) {
  if (result.root->record.phase != Phase::kOptimizer) return std::nullopt;
  const FactDifference* fact = optimizer_setting(result);
  if (fact == nullptr) return std::nullopt;
  return Cause{"setting", fact_text(*fact), {update_evidence(*result.root)}};
}

/// One run continues from weights of the other one, and its first update differs in all parameters:
/// the optimizer began with another state.
std::optional<Cause> by_optimizer_state(const DiffResult& result) {
  const RootReport& root = *result.root;
  const StepOffset& offset = result.step_offset;
  const auto [wrong, all] = root.updates;
  if (offset.overruled && root.record.phase == Phase::kOptimizer)
    return Cause{"optimizer-state",
                 "the optimizers had counted " + std::to_string(offset.overruled->first) + " | " +
                     std::to_string(offset.overruled->second) +
                     " updates that these traces do not hold: the state of one was not loaded",
                 {"the runs begin with equal weights, and " + update_evidence(root)}};
  const bool at_first_update = offset.steps != 0 && wrong > 1 && wrong == all &&
                               root.record.step == std::abs(offset.steps) &&
                               root.before[static_cast<size_t>(Phase::kForward)] == Shown::kEqual &&
                               root.parameter_gradients == Shown::kEqual;
  if (offset.counted || !at_first_update) return std::nullopt;
  return Cause{"optimizer-state",
               std::string("the optimizer of the ") +
                   (offset.steps < 0 ? "candidate" : "baseline") + " continues behind " +
                   tools::counted(static_cast<uint64_t>(std::abs(offset.steps)), "update") +
                   " without their state: it was not loaded, or not all of it",
               {"the forward pass agrees, and " + update_evidence(root)}};
}

/// The module computes in another type, or its parameters have one: autocast, or a conversion.
std::optional<Cause> by_type(const DiffResult& result) {
  const RecordReport& root = result.root->record;
  const bool both_known =
      root.base.dtype != format::DType::kUnknown && root.cand.dtype != format::DType::kUnknown;
  if (!both_known || root.base.dtype == root.cand.dtype || root.comparison.field == Field::kShape)
    return std::nullopt;
  const std::string types =
      std::string(to_string(root.base.dtype)) + " | " + std::string(to_string(root.cand.dtype));
  const std::string module = tools::module_text(root.scope);
  return Cause{"type",
               result.root->weights_differ
                   ? "the weights of " + module + " are " + types + ": the model was converted"
                   : module + " computes in " + types + ": autocast, or a cast",
               {"the first value that differs has another type"}};
}

/// Data that are the other run's times one number, but for rounding: a function of them may be
/// nearly a multiple.
std::optional<Cause> by_scaled_input(const DiffResult& result) {
  const RecordReport& root = result.root->record;
  if (root.phase != Phase::kData && !result.root->came_in) return std::nullopt;
  const RecordReport& given = result.root->came_in ? *result.root->came_in : root;
  const auto factor =
      factor_of(given.base.stats, given.cand.stats, given.base.samples, given.cand.samples);
  constexpr double kRoundings = 8;
  const double unit = std::max(unit_roundoff(given.base.dtype), unit_roundoff(given.cand.dtype));
  if (!factor || factor->rest > kRoundings * std::max(unit, kSketchFloor)) return std::nullopt;
  return Cause{"scaled-input",
               given.slot + " of " + tools::module_text(given.scope) + " is " +
                   tools::number_text(factor->value, 4) +
                   " times the baseline's: it is normalised or scaled otherwise",
               {"nothing before it differs"}};
}

std::optional<Cause> by_values(const DiffResult& result, bool certain) {
  const auto& shown = result.root->shown;
  if (!shown || shown->is_certain != certain) return std::nullopt;
  return Cause{shown->rule, shown->text, shown->evidence};
}

/// Causes that the values alone prove, and those that apply if no setting and no generator does.
std::optional<Cause> by_certain_values(const DiffResult& result) { return by_values(result, true); }
std::optional<Cause> by_other_values(const DiffResult& result) { return by_values(result, false); }

/// Random numbers come from a generator in another state: initial weights, data, dropout.
std::optional<Cause> by_generator(const DiffResult& result) {
  const RootReport& root = *result.root;
  const bool draws = root.weights_differ || root.record.phase == Phase::kData ||
                     (root.record.phase == Phase::kForward && draws_random_numbers(root));
  const FactDifference* fact = generator(result);
  const bool is_excluded = root.shown && root.shown->rule == "initialization";
  if (!draws || fact == nullptr || is_excluded) return std::nullopt;
  const std::string what = root.weights_differ ? "the first values that differ are initial weights"
                           : root.record.phase == Phase::kData
                               ? "the first value that differs is data"
                               : "the first value that differs is made of random numbers";
  return Cause{"generator", fact_text(*fact), {what}};
}

std::optional<Cause> by_code(const DiffResult& result) {
  const CodePlace& code = result.root->code;
  if (result.root->record.phase == Phase::kOptimizer) {
    const auto fact = std::ranges::find_if(result.facts, [](const FactDifference& one) {
      return one.kind == FactKind::kCode && !one.scope.empty();
    });
    if (fact == result.facts.end()) return std::nullopt;
    return Cause{
        "code", fact_text(*fact), {"an optimizer is of this class", update_evidence(*result.root)}};
  }
  if (!code.op_code.empty())
    return Cause{"code", code.op_code, {"the first value that differs is of this op"}};
  const RootReport& root = *result.root;
  if (root.came_in && root.caller.changed)
    return Cause{
        "code",
        code_text(root.caller),
        {"code of this class makes " + root.came_in->slot + " of " +
         tools::module_text(root.record.scope) + ", and no recorded value before it diverges"}};
  if (!code.changed) return std::nullopt;
  return Cause{"code", code_text(code), {"the first value that differs is of this class"}};
}

/// @return whether a function of the root's module may draw random numbers: of torch's own modules
/// few do.
bool may_draw(const RootReport& root) {
  constexpr std::array kDrawing = {"Attention", "Transformer", "RNN", "LSTM", "GRU", "Fractional"};
  const std::string& kind = root.code.qualified_class;
  return !kind.starts_with("torch.nn.") || draws_random_numbers(root) ||
         std::ranges::any_of(
             kDrawing, [&kind](const char* one) { return kind.find(one) != std::string::npos; });
}

/// A function draws random numbers, as F.dropout in a module or between modules: its inputs agree,
/// and a generator's state differs first at the begin of the root's step or of the next one.
std::optional<Cause> by_draws(const DiffResult& result) {
  const RootReport& root = *result.root;
  const bool is_made_here = root.record.slot.starts_with("output:") &&
                            !root.weights_are(Shown::kDifferent) && inputs_were_compared(root) &&
                            agrees(root.record.comparison.worst_input) && may_draw(root);
  const Phase phase = root.record.phase;
  if (!(phase == Phase::kForward && is_made_here) && !root.came_in) return std::nullopt;
  const auto fact = std::ranges::find_if(result.facts, [&](const FactDifference& one) {
    return one.kind == FactKind::kGenerator &&
           (one.step == root.record.step || one.step == root.record.step + 1);
  });
  if (fact == result.facts.end()) return std::nullopt;
  return Cause{
      "generator",
      fact_text(*fact),
      {(root.came_in
            ? "what was computed before agrees, and what code between modules made of it"
            : "what " + tools::module_text(root.record.scope) + " took agrees, and its result") +
       std::string(" does not: a function in it may draw")}};
}

/// A forward hook that one run alone has on the root's module, if nothing else explains its output.
std::optional<Cause> by_hooks(const DiffResult& result) {
  const RecordReport& root = result.root->record;
  if (root.phase != Phase::kForward || role_of(root.slot) != Role::kOutput) return std::nullopt;
  const auto fact = std::ranges::find_if(result.facts, [&root](const FactDifference& one) {
    return one.name == kHooks && is_in(one, root.scope) && was_before(one, root) &&
           (one.base.value_or("") + one.cand.value_or("")).find("forward hook") !=
               std::string::npos;
  });
  if (fact == result.facts.end()) return std::nullopt;
  return Cause{
      "setting", fact_text(*fact), {"such a hook may have replaced the output of this module"}};
}

std::optional<Cause> by_region(const DiffResult& result) {
  const RegionPlace& region = result.root->region;
  if (region.name.empty() || !region.border_equal) return std::nullopt;
  return Cause{"compiled-region",
               "compiled region " + region.name + " computes otherwise",
               {"all values that it took agree"}};
}

}  // namespace

std::optional<Cause> probable_cause(const DiffResult& result) {
  // Steps that begin with other weights say nothing about a cause.
  if (!result.root || result.root->offset) return std::nullopt;
  if (auto found = find_cause(*result.root, result.base_findings, result.cand_findings))
    return Cause{.rule = "finding", .text = {}, .evidence = {}, .finding = std::move(found)};
  constexpr std::array kRules = {by_known_setting,
                                 by_certain_values,
                                 by_write,
                                 by_module_setting,
                                 by_shared_weight,
                                 by_other_inputs,
                                 by_optimizer_setting,
                                 by_type,
                                 by_scaled_input,
                                 by_generator,
                                 by_other_values,
                                 by_code,
                                 by_hooks,
                                 by_draws,
                                 by_optimizer_state,
                                 by_region};
  for (const auto rule : kRules) {
    if (auto cause = rule(result)) return cause;
  }
  return std::nullopt;
}

}  // namespace convtrace::diff
