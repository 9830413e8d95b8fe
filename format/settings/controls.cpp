#include "format/settings/controls.h"

#include <algorithm>
#include <utility>

namespace convtrace::settings {
namespace {

using format::Capture;
using Rules = std::vector<Rule>;

bool stores(const Settings& settings, const Rules& rules) {
  return settings.mode == Mode::kSnapshot || std::ranges::any_of(rules, [](const Rule& rule) {
           return rule.capture == format::Capture::kSnapshot;
         });
}

bool takes_no_values(const Settings& settings) { return settings.mode == Mode::kLaunches; }

struct IdleSetting {
  std::string_view variable;
  bool (*idle)(const Settings& settings, const Rules& rules);
  std::string_view why;
  std::string_view how_much{};
};

constexpr std::string_view kNoValues = "mode launches takes no values";
constexpr std::string_view kNothingStored = "nothing is stored without mode snapshot or a rule";

constexpr IdleSetting kIdle[] = {
    {"CONVTRACE_ALL",
     [](const Settings& s, const Rules&) { return s.all && s.mode != Mode::kSnapshot; },
     "it is for mode snapshot"},
    {"CONVTRACE_ALL_KERNELS",
     [](const Settings& s, const Rules&) { return s.all_kernels && takes_no_values(s); },
     kNoValues},
    {"CONVTRACE_OPS", [](const Settings& s, const Rules&) { return takes_no_values(s); },
     kNoValues},
    {"CONVTRACE_OVERHEAD", [](const Settings& s, const Rules&) { return takes_no_values(s); },
     kNoValues},
    {"CONVTRACE_OVERHEAD", [](const Settings& s, const Rules&) { return !s.steps.is_all(); },
     "CONVTRACE_STEPS names the steps"},
    {"CONVTRACE_OPTIMIZER_STATE",
     [](const Settings& s, const Rules&) { return s.optimizer_state && takes_no_values(s); },
     kNoValues},
    {"CONVTRACE_RING",
     [](const Settings& s, const Rules&) {
       const bool numbers = s.ring.on(Trigger::kNan) || s.ring.on(Trigger::kSpike);
       return s.ring.steps != 0 && numbers && s.mode < Mode::kStats;
     },
     "its triggers nan and spike see statistics, which this mode does not take", "in part"},
    {"CONVTRACE_SPIKE",
     [](const Settings& s, const Rules&) {
       return s.ring.steps == 0 || !s.ring.on(Trigger::kSpike);
     },
     "it is a trigger of CONVTRACE_RING, which does not name it"},
    {"CONVTRACE_SNAPSHOT_FULL",
     [](const Settings& s, const Rules& rules) { return !stores(s, rules); }, kNothingStored},
    {"CONVTRACE_SNAPSHOT_MEMORY",
     [](const Settings& s, const Rules& rules) { return !stores(s, rules); }, kNothingStored},
};

/// @return the place where a setting was given, as a prefix: "rules.toml:3: ", or "".
std::string where_said(const SaidBy& said_by, std::string_view variable) {
  const auto found = said_by.find(variable);
  return found == said_by.end() ? "" : found->second;
}

/// @return one line for each setting that is valid and has no effect beside the others.
std::vector<std::string> idle_settings(const SaidBy& said_by, const Settings& settings,
                                       const Rules& rules) {
  std::vector<std::string> lines;
  if (!settings.enabled || settings.mode == Mode::kOff) return lines;
  for (const IdleSetting& row : kIdle) {
    if (!said_by.contains(row.variable) || !row.idle(settings, rules)) continue;
    lines.push_back(where_said(said_by, row.variable).append(row.variable) + " has no effect" +
                    (row.how_much.empty() ? "" : ' ' + std::string(row.how_much)) + ": " +
                    std::string(row.why));
  }
  return lines;
}

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
  const auto is_storing = [](const Rule& rule) { return rule.capture == Capture::kSnapshot; };
  const auto storing = std::ranges::find_if(loaded.rules, is_storing);
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
