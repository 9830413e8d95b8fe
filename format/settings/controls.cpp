#include "format/settings/controls.h"

#include <algorithm>
#include <utility>

#include "format/settings/idle_settings.h"

namespace convtrace::settings {
namespace {

using format::Capture;

/// Fills in what a rule may omit.
void complete_rules(LoadedControls& loaded) {
  for (Rule& rule : loaded.rules) {
    const bool declares = rule.inplace || rule.suppress;
    if (loaded.settings.mode == Mode::kSnapshot && !rule.capture && !declares)
      rule.capture = Capture::kSnapshot;
    if (rule.kernel && rule.capture && rule.outputs.empty() && rule.inputs.empty())
      rule.outputs_auto = true;
  }
}

bool does_anything(const Rule& rule) {
  return takes_values(rule) || rule.inplace || rule.suppress || (rule.samples && !rule.kernel);
}

/// Finds settings that are valid alone and contradict each other.
void find_contradictions(const SaidBy& said_by, LoadedControls& loaded) {
  const std::string mode = where_said(said_by, "CONVTRACE_MODE") + "mode snapshot";
  const Settings& s = loaded.settings;
  const auto stores = [](const Rule& rule) { return rule.capture == Capture::kSnapshot; };
  const auto storing = std::ranges::find_if(loaded.rules, stores);
  const bool any_rule_stores = storing != loaded.rules.end();
  if (s.mode == Mode::kSnapshot && !s.all && !any_rule_stores) {
    loaded.problems.push_back(
        mode +
        " without a rule would store every value of the run (`convtrace info` of a "
        "trace in mode stats says how many bytes that is a step); name what you want in a "
        "[[rule]], or set --all (CONVTRACE_ALL=1)");
  }
  if (s.ring.steps != 0 && (any_rule_stores || (s.mode == Mode::kSnapshot && s.all))) {
    loaded.problems.push_back((any_rule_stores ? storing->where : mode) +
                              ": values cannot be stored with CONVTRACE_RING, which keeps events "
                              "in memory; use hash or stats");
  }
  for (const Rule& rule : loaded.rules) {
    if (does_anything(rule)) continue;
    loaded.problems.push_back(rule.where +
                              ": the rule says what it is about and nothing else; add capture, "
                              "outputs, inplace or suppress");
  }
}

Capture capture_of(Mode mode) {
  if (mode == Mode::kSnapshot) return Capture::kSnapshot;
  return mode == Mode::kHash ? Capture::kHash : Capture::kStats;
}

void add_rule_for_all_kernels(LoadedControls& loaded) {
  const Settings& s = loaded.settings;
  const bool typed = s.compiled == Compiled::kAll;
  if (s.mode < Mode::kHash || (!s.all_kernels && !typed)) return;
  loaded.rules.push_back(
      rule_for_all_kernels(s.all_kernels ? Rule::AllKernels::kEach : Rule::AllKernels::kTyped,
                           capture_of(mode_without_rule(s))));
}

}  // namespace

LoadedControls load_controls(const char* const* environment) {
  LoadedSettings settings = load_from_environment(environment);
  LoadedControls loaded{.settings = std::move(settings.settings),
                        .rules = {},
                        .problems = std::move(settings.problems),
                        .warnings = {}};
  if (!loaded.settings.config.empty()) {
    LoadedRules rules = load_rules(loaded.settings.config);
    loaded.rules = std::move(rules.rules);
    for (std::string& problem : rules.problems) {
      // A file that cannot be read or parsed is one problem.
      if (std::ranges::find(loaded.problems, problem) == loaded.problems.end())
        loaded.problems.push_back(std::move(problem));
    }
  }
  complete_rules(loaded);
  if (loaded.problems.empty()) find_contradictions(settings.said_by, loaded);
  if (!loaded.problems.empty()) {
    loaded.rules.clear();
    return loaded;
  }
  loaded.warnings = idle_settings(settings.said_by, loaded.settings, loaded.rules);
  add_rule_for_all_kernels(loaded);
  return loaded;
}

}  // namespace convtrace::settings
