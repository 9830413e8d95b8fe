#include "interposer/core/control/live_controls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "interposer/core/control/empty_trace_reasons.h"

namespace convtrace::engine {
namespace {

/// The list is valid: settings are checked before an engine exists.
std::vector<settings::Pattern> patterns(const std::string& list) {
  auto compiled = settings::compile_patterns(list);
  return compiled.ok() ? std::move(compiled).value() : std::vector<settings::Pattern>();
}

void append(std::vector<Notice>& lines, std::vector<Notice> more) {
  lines.insert(lines.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
}

}  // namespace

LiveControls::LiveControls(const settings::Settings& wanted, std::vector<settings::Rule> rules,
                           const Rank& rank, std::vector<std::string> environment,
                           const format::Definitions& definitions, FactTable& facts)
    : facts_(facts),
      rank_(rank),
      all_rules_(std::move(rules)),
      rules_(rules_of_rank(all_rules_, rank)),
      steps_(wanted.mode, wanted.steps, wanted.overhead),
      names_(patterns(wanted.include), patterns(wanted.exclude), definitions),
      captures_(settings::mode_without_rule(wanted), rules_, definitions, wanted.ring.steps == 0,
                wanted.samples),
      config_(wanted, std::move(environment)) {
  tell(wanted);
}

ControlChange LiveControls::poll(uint64_t now_ns) {
  ControlChange change;
  if (steps_.take_decided()) tell_steps();
  std::optional<ConfigChange> file = config_.poll(now_ns);
  if (!file) return change;
  change.lines = std::move(file->lines);
  if (!file->applies) return change;
  const settings::Settings& wanted = file->settings;
  steps_.want(wanted.mode, wanted.steps);
  // About rules and patterns that are replaced. Names that they would have matched may still have
  // come.
  std::vector<Notice> of_old = report();
  std::erase_if(of_old, [](const Notice& line) { return line.message.warns(); });
  append(change.lines, std::move(of_old));
  names_.replace(patterns(wanted.include), patterns(wanted.exclude));
  captures_.set_mode(settings::mode_without_rule(wanted));
  {
    const Lock lock(all_rules_mutex_);
    all_rules_ = std::move(file->rules);
  }
  take_rules_of_rank();
  ++reloads_;
  tell(wanted);
  facts_.set("setting.reloads", std::to_string(reloads_));
  change.applied = true;
  return change;
}

bool LiveControls::follow_rank() {
  const auto is_of_ranks = [](const settings::Rule& rule) {
    return rule.ranks.ranks_text() != settings::StepSet().ranks_text();
  };
  {
    const Lock lock(all_rules_mutex_);
    if (std::ranges::none_of(all_rules_, is_of_ranks)) return false;
  }
  take_rules_of_rank();
  return true;
}

void LiveControls::take_rules_of_rank() {
  const Lock lock(all_rules_mutex_);
  rules_.replace(rules_of_rank(all_rules_, rank_.get()));
}

std::vector<Notice> LiveControls::report() const {
  std::vector<Notice> lines = names_.report();
  append(lines, rules_.report());
  return lines;
}

std::vector<std::string> LiveControls::reasons_for_nothing(bool has_context) {
  std::vector<std::string> reasons = empty_trace_reasons(steps_.seen(), has_context);
  const Lock lock(all_rules_mutex_);
  for (std::string& line : rules_of_no_rank(all_rules_, rank_.get()))
    reasons.push_back(std::move(line));
  return reasons;
}

void LiveControls::tell(const settings::Settings& wanted) {
  for (const settings::SettingSpec& spec : settings::setting_table()) {
    if (spec.name != "CONVTRACE_STEPS")
      facts_.set("setting." + std::string(spec.name), spec.print(wanted));
  }
  tell_steps();
  std::string rules;
  for (const settings::Rule* rule : rules_.rules())
    rules += (rules.empty() ? "" : "; ") + settings::print(*rule);
  if (!rules.empty() || reloads_ > 0) facts_.set("setting.rules", std::move(rules));
}

void LiveControls::tell_steps() {
  facts_.set("setting.CONVTRACE_STEPS", steps_.seen().asked);
  if (std::optional<std::string> text = steps_.budget_text())
    facts_.set("overhead", *std::move(text));
}

}  // namespace convtrace::engine
