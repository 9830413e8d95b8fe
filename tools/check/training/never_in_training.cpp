/// @file never_in_training.cpp
/// mode: a dropout, or a batch norm, that is in evaluation mode in every step in which the
/// parameters beside it move.
///
/// Why it is a fault: models from a hub are loaded in evaluation mode, and a loop that does not
/// call model.train() trains without the model's dropout. A program that intends this sets p to 0.
/// Judged: a dropout with p above 0 (warning), a batch norm alone (hint, since freezing it is
/// common). Beside a module are the parameters below the nearest module around it that has any.
/// A call counts as training by its phase, or if the step's backward pass reached it.
/// Silent: a module that was in training mode in one training call, parameters that do not move,
/// fewer than two such steps.
/// Not told apart: a policy whose dropout is off on purpose.

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using format::Phase;
using format::StringId;

using Names = std::set<std::string>;

constexpr size_t kModulesTold = 3;

class NeverInTraining : public Check {
  static constexpr uint32_t kLeastSteps = 2;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    const std::set<StringId> called = called_of(step);
    take_modes(step, around);
    const Names moved = moved_of(step, around);
    if (!step.trains || moved.empty()) return;
    for (const StringId scope : called) {
      if (trained_.contains(scope)) continue;
      const bool drops = around.facts.drop_rate(scope) > 0;
      if ((!drops && !is_norm(around, scope)) || !any_beside(around, scope, moved)) continue;
      Away& away = away_[scope];
      if (away.steps++ == 0) away.first = step.number;
    }
  }

  void end(const Surroundings& around) override {
    std::vector<StringId> drops, norms;
    for (const auto& [scope, away] : away_) {
      if (away.steps < kLeastSteps || trained_.contains(scope)) continue;
      (around.facts.drop_rate(scope) > 0 ? drops : norms).push_back(scope);
    }
    if (!drops.empty()) tell(around, drops, norms, Severity::kWarning);
    if (drops.empty() && !norms.empty()) tell(around, norms, {}, Severity::kHint);
  }

 private:
  struct Away {
    uint32_t first = 0, steps = 0;
  };

  static bool is_norm(const Surroundings& around, StringId scope) {
    return around.facts.class_of(scope).find("BatchNorm") != std::string_view::npos;
  }

  /// Modules that training called. Before anything is learned in a step a call in evaluation mode
  /// is recorded as one of evaluation.
  static std::set<StringId> called_of(const StepValues& step) {
    std::set<StringId> called;
    for (const auto& [key, call] : step.calls) {
      const bool reached = key.phase == Phase::kEvaluation && step.grad_outputs.contains(key.scope);
      if (!key.op && (key.phase == Phase::kForward || reached)) called.insert(key.scope);
    }
    return called;
  }

  /// @return whether a step calls a module several times in training: then a fact's call is
  /// unknown.
  static bool is_called_again(const StepValues& step, StringId scope) {
    unsigned calls = 0;
    bool evaluated = false;
    for (auto entry = step.calls.lower_bound({scope, {}, Phase::kForward, 0});
         entry != step.calls.end() && entry->first.scope == scope && !entry->first.op; ++entry) {
      calls += entry->first.phase == Phase::kForward ? 1 : 0;
      evaluated |= entry->first.phase == Phase::kEvaluation;
    }
    return calls > 1 && !evaluated;
  }

  void take_modes(const StepValues& step, const Surroundings& around) {
    for (const FactSeen& fact : step.facts) {
      const std::string_view name = around.names.text(fact.name);
      if (!fact.scope || name != "mode") continue;
      const bool away = fact.value == "eval";
      if (!away || is_called_again(step, fact.scope)) trained_.insert(fact.scope);
      if (away) in_eval_.insert(fact.scope);
      if (!away) in_eval_.erase(fact.scope);
    }
    for (const auto& [key, call] : step.calls)
      if (!key.op && key.phase == Phase::kForward && !in_eval_.contains(key.scope))
        trained_.insert(key.scope);
  }

  /// The modules with a parameter that an update changed.
  Names moved_of(const StepValues& step, const Surroundings& around) {
    Names moved;
    for (const auto& [parameter, now] : step.parameters) {
      const Value* const last = now.updates.empty() ? now.initial : now.updates.back();
      if (last == nullptr) continue;
      owners_.emplace(around.names.text(parameter.scope));
      const auto [entry, is_new] = hashes_.try_emplace(parameter, last->stats.hash);
      const uint64_t before = now.initial != nullptr ? now.initial->stats.hash : entry->second;
      const bool known = !is_new || now.initial != nullptr;
      if (known && !now.updates.empty() && before != last->stats.hash)
        moved.emplace(around.names.text(parameter.scope));
      entry->second = last->stats.hash;
    }
    return moved;
  }

  static bool any_below(std::string_view path, const Names& modules) {
    if (path.empty()) return !modules.empty();
    return std::ranges::any_of(modules, [path](const std::string& one) {
      return one == path || (one.starts_with(path) && one[path.size()] == '.');
    });
  }
  [[nodiscard]] bool any_beside(const Surroundings& around, StringId scope,
                                const Names& moved) const {
    std::string_view path = around.names.text(scope);
    while (!path.empty() && !any_below(path, owners_)) {
      const size_t dot = path.rfind('.');
      path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
    }
    return any_below(path, moved);
  }

  static std::string list_of(const Surroundings& around, const std::vector<StringId>& scopes) {
    std::string text;
    for (size_t i = 0; i < std::min(scopes.size(), kModulesTold); ++i) {
      text += (i == 0 ? "" : ", ") + module_name(around.names, scopes[i]) + " (" +
              std::string(around.facts.class_of(scopes[i]));
      if (const double rate = around.facts.drop_rate(scopes[i]); rate > 0)
        text += ", p " + tools::number_text(rate);
      text += ')';
    }
    if (scopes.size() > kModulesTold)
      text += " and " + std::to_string(scopes.size() - kModulesTold) + " more";
    return text;
  }

  void tell(const Surroundings& around, const std::vector<StringId>& told,
            const std::vector<StringId>& norms, Severity severity) {
    const Away& away = away_[told.front()];
    Finding finding{.id = "mode", .severity = severity, .rank = around.rank, .step = away.first};
    finding.phase = Phase::kForward;
    finding.scope = around.names.text(told.front());
    finding.text = list_of(around, told) + (told.size() == 1 ? " is" : " are") +
                   " in evaluation mode in each step in which the parameters beside " +
                   (told.size() == 1 ? "it" : "them") + " move.";
    finding.text[0] = std::ranges::find(finding.text, 't') == finding.text.begin() ? 'T' : 'M';
    finding.evidence = {"training = False in " + tools::counted(away.steps, "training step") +
                        ", and True in none"};
    if (!norms.empty())
      finding.evidence.push_back("in evaluation mode, too: " + list_of(around, norms));
    finding.cause =
        severity == Severity::kWarning
            ? "the model came in evaluation mode (from_pretrained(), eval() after loading), and "
              "nothing called model.train()"
            : "the norm is frozen on purpose, or nothing called model.train()";
    finding.next = severity == Severity::kWarning
                       ? "call model.train() before the first step; where no dropout is meant, set "
                         "p to 0"
                       : "where it is not meant, call model.train() before the first step";
    report(std::move(finding));
  }

  std::set<StringId> trained_, in_eval_;
  Names owners_;  ///< modules with parameters
  std::map<Parameter, uint64_t> hashes_;
  std::map<StringId, Away> away_;
};

}  // namespace

std::unique_ptr<Check> make_never_in_training() { return std::make_unique<NeverInTraining>(); }

}  // namespace convtrace::check
