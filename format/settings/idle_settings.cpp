#include "format/settings/idle_settings.h"

#include <algorithm>

namespace convtrace::settings {
namespace {

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

}  // namespace

std::string where_said(const SaidBy& said_by, std::string_view variable) {
  const auto found = said_by.find(variable);
  return found == said_by.end() ? "" : found->second;
}

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

}  // namespace convtrace::settings
