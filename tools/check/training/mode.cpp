/// @file mode.cpp
/// mode: a module is in evaluation mode while it trains, or in training mode while it is evaluated.
///
/// Why it is a fault: model.eval() before a validation and no model.train() after it switches off
/// dropout and stops the statistics of batch norm for the rest of the run.
/// Judged: a module that trained in training mode and later trains in evaluation mode, in three
/// steps without a return; a module that was trained and later takes two or more batches of an
/// evaluation in training mode, if its class depends on the mode (dropout, batch norm).
/// Silent: a module that never trained in training mode (a frozen backbone); one that alternates (a
/// critic while its generator learns); one batch without gradients in training mode (a generator
/// that makes fakes); a model that is never trained itself (an average of weights whose batch norm
/// is updated).
/// A hint if no module that left training mode depends on the mode, or only norms left it (they are
/// frozen), and for a dropout in training mode inside modules that are in evaluation mode, or in an
/// evaluation that takes one batch several times: the program samples.

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

using format::Phase;

class Mode : public Check {
  static constexpr unsigned kLeastSteps = 3;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const FactSeen& fact : step.facts) {
      const std::string_view name = around.names.text(fact.name);
      if (!fact.scope) continue;
      if (name == "mode") {
        if (fact.value == "eval")
          in_eval_[fact.scope] = {.since = step.number, .left = trained_.contains(fact.scope)};
        if (fact.value != "eval") in_eval_.erase(fact.scope);
      }
      if (name == "mode.evaluation") {
        if (fact.value == "train") evaluated_training_.insert(fact.scope);
        if (fact.value != "train") evaluated_training_.erase(fact.scope);
      }
    }
    if (step.trains) look("mode");
    for (const Value* input : step.data) roots_.insert(input->place.scope);
    std::map<format::StringId, unsigned> evaluated;
    std::set<std::pair<format::StringId, std::vector<uint64_t>>> batches;
    bool samples = false;  // one batch is evaluated several times
    for (const auto& [key, call] : step.calls) {
      if (key.phase == Phase::kForward && step.trains && !key.op) {
        const auto away = in_eval_.find(key.scope);
        if (away == in_eval_.end()) trained_.insert(key.scope);
        if (away != in_eval_.end() && away->second.left && away->second.steps.size() < kLeastSteps)
          away->second.steps.insert(step.number);
      }
      if (key.phase != Phase::kEvaluation || key.op) continue;
      ++evaluated[key.scope];
      std::vector<uint64_t> batch;
      for (const Value* input : call.inputs) batch.push_back(input->stats.hash);
      if (roots_.contains(key.scope) && !batch.empty())
        samples |= !batches.emplace(key.scope, std::move(batch)).second;
    }
    tell_left(around);
    for (const auto& [scope, calls] : evaluated) {
      if (calls < 2 || !evaluated_training_.contains(scope)) continue;
      if (!trained_.contains(scope) || !around.facts.depends_on_mode(scope)) continue;
      const bool alone = around.facts.drops(scope) && (samples || !with_all_above(around, scope));
      if (!told_[alone])
        tell_evaluation(alone ? Severity::kHint : Severity::kWarning, step, around, scope, calls);
      told_[alone] = true;
    }
  }

 private:
  static Finding at(Severity severity, uint32_t step, const Surroundings& around,
                    format::StringId scope, Phase phase) {
    Finding finding{.id = "mode", .severity = severity, .rank = around.rank, .step = step};
    finding.phase = phase;
    finding.scope = around.names.text(scope);
    return finding;
  }

  /// @return whether a module is evaluated in training mode together with all modules around it. If
  /// not, the program put it alone into training mode, as for a sampled dropout.
  [[nodiscard]] bool with_all_above(const Surroundings& around, format::StringId scope) const {
    const auto texts = [&around](const std::set<format::StringId>& scopes) {
      std::set<std::string_view> all;
      for (const format::StringId one : scopes) all.insert(around.names.text(one));
      return all;
    };
    const auto training = texts(evaluated_training_), roots = texts(roots_);
    std::string_view path = around.names.text(scope);
    while (!path.empty() && !roots.contains(path)) {
      const size_t dot = path.rfind('.');
      path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
      if (!training.contains(path)) return false;
    }
    return true;
  }

  void tell_left(const Surroundings& around) {
    const auto stays = [](const auto& entry) {
      return entry.second.left && entry.second.steps.size() >= kLeastSteps;
    };
    const auto one = std::ranges::find_if(in_eval_, stays);
    if (one == in_eval_.end()) return;
    const uint32_t since = one->second.since;
    std::vector<format::StringId> left;  // all that left with it
    for (auto& [scope, away] : in_eval_) {
      if (!away.left || away.since != since) continue;
      left.push_back(scope);
      away.left = false;  // told
    }
    bool matters = false, norms = true;
    format::StringId top = left.front(), first;
    for (const format::StringId scope : left) {
      norms = norms && around.facts.class_of(scope).find("Norm") != std::string_view::npos;
      if (around.names.text(scope).size() < around.names.text(top).size()) top = scope;
      if (!around.facts.depends_on_mode(scope)) continue;
      if (!matters) first = scope;
      matters = true;
    }
    const Severity severity = matters && !norms ? Severity::kWarning : Severity::kHint;
    Finding finding = at(severity, since, around, top, Phase::kForward);
    const std::string others =
        left.size() == 1 ? "" : " and " + std::to_string(left.size() - 1) + " more";
    finding.text = "From step " + std::to_string(since) + " on " + module_name(around.names, top) +
                   others + (left.size() == 1 ? " is" : " are") +
                   " trained in evaluation mode, after training in training mode.";
    finding.evidence = {"training = False in a forward pass of training from this step on"};
    if (matters)
      finding.evidence.push_back("computes otherwise then: " + module_name(around.names, first) +
                                 ", " + std::string(around.facts.class_of(first)));
    finding.cause =
        "model.eval() for a validation without model.train() after it, or model.training was set "
        "where model.train() was meant";
    finding.next = "call model.train() at the begin of each epoch";
    report(std::move(finding));
  }

  void tell_evaluation(Severity severity, const StepValues& step, const Surroundings& around,
                       format::StringId scope, unsigned calls) {
    Finding finding = at(severity, step.number, around, scope, Phase::kEvaluation);
    finding.text = "Evaluation before step " + std::to_string(step.number) + " runs " +
                   module_name(around.names, scope) + " (" +
                   std::string(around.facts.class_of(scope)) + ") in training mode.";
    finding.evidence = {std::to_string(calls) + " calls without gradients, training = True"};
    const bool drops = around.facts.drops(scope);
    finding.cause =
        std::string("model.eval() is missing: ") +
        (severity == Severity::kHint
             ? "the dropout drops: it is sampled, or eval() does not reach it (a plain list)"
         : drops ? "the dropout drops"
                 : "the norm uses the batch, and learns from it");
    finding.next = "call model.eval() before the evaluation, and model.train() after it";
    report(std::move(finding));
  }

  /// A module whose training calls are in evaluation mode.
  struct Away {
    uint32_t since = 0;
    bool left = false;           ///< it trained in training mode before, and that was not told
    std::set<uint32_t> steps{};  ///< later steps in which it was called
  };

  std::set<format::StringId> trained_, evaluated_training_, roots_;
  std::map<format::StringId, Away> in_eval_;
  std::array<bool, 2> told_{};  ///< a whole model in evaluation; a dropout alone
};

}  // namespace

std::unique_ptr<Check> make_mode() { return std::make_unique<Mode>(); }

}  // namespace convtrace::check
