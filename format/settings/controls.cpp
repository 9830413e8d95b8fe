#include "format/settings/controls.h"

#include <algorithm>
#include <utility>

namespace convtrace::settings {
namespace {

using format::Capture;

void append(std::vector<std::string>&& more, std::vector<std::string>& problems) {
  std::move(more.begin(), more.end(), std::back_inserter(problems));
}

/// In mode snapshot a rule need not say so: it names what is stored.
void complete_rules(LoadedControls& loaded) {
  if (loaded.settings.mode != Mode::kSnapshot) return;
  for (Rule& rule : loaded.rules) {
    if (rule.capture || rule.inplace || rule.suppress) continue;
    rule.capture = Capture::kSnapshot;
    rule.has_effect = true;
  }
}

/// What is good by itself and means nothing together.
/// @param mode_from  see LoadedSettings.
void find_contradictions(const std::string& mode_from, LoadedControls& loaded) {
  const std::string mode = mode_from.empty() ? "mode snapshot" : mode_from + ": mode snapshot";
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
    if (rule.has_effect) continue;
    loaded.problems.push_back(rule.where +
                              ": the rule says what it is about and nothing else; add capture, "
                              "outputs, inplace or suppress");
  }
}

Capture capture_of(Mode mode) {
  if (mode == Mode::kSnapshot) return Capture::kSnapshot;
  return mode == Mode::kHash ? Capture::kHash : Capture::kStats;
}

}  // namespace

LoadedControls load_controls(const char* const* environment) {
  LoadedSettings settings = load_from_environment(environment);
  LoadedControls loaded{.settings = std::move(settings.settings),
                        .rules = {},
                        .problems = std::move(settings.problems)};
  if (loaded.problems.empty() && !loaded.settings.config.empty()) {
    LoadedRules rules = load_rules(loaded.settings.config);
    loaded.rules = std::move(rules.rules);
    append(std::move(rules.problems), loaded.problems);
  }
  complete_rules(loaded);
  if (loaded.problems.empty()) find_contradictions(settings.mode_from, loaded);
  if (!loaded.problems.empty()) {
    loaded.rules.clear();
    return loaded;
  }
  if (loaded.settings.all_kernels && loaded.settings.mode >= Mode::kHash)
    loaded.rules.push_back(rule_for_all_kernels(capture_of(mode_without_rule(loaded.settings))));
  return loaded;
}

}  // namespace convtrace::settings
