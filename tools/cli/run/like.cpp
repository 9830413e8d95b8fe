#include "tools/cli/run/like.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "format/settings/controls.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"

namespace convtrace::tools {
namespace {

constexpr std::string_view kPrefix = "setting.";
constexpr std::string_view kConfig = "CONVTRACE_CONFIG", kSteps = "CONVTRACE_STEPS",
                           kOverhead = "CONVTRACE_OVERHEAD", kRules = "setting.rules";
/// The settings for the place of a run's trace; not taken from its file of settings either.
constexpr std::string_view kOfTrace[] = {"CONVTRACE_OUTPUT", "CONVTRACE_OVERWRITE"};
/// The settings for a run's other files, and those that CONVTRACE_STEPS replaces.
constexpr std::string_view kNotTaken[] = {"CONVTRACE_CONFIG", "CONVTRACE_OVERHEAD",
                                          "CONVTRACE_CUPTI", "CONVTRACE_LOG", "CONVTRACE_LOG_FILE"};

void set(std::string_view name, std::string_view value) {
  setenv(std::string(name).c_str(), std::string(value).c_str(), 1);
}

void join(std::string& list, const std::string& part) { list += (list.empty() ? "" : ", ") + part; }

/// @return the rules of a rank as its trace has them.
std::string rules_text(const settings::LoadedControls& controls, uint32_t rank) {
  std::string text;
  for (const settings::Rule& rule : controls.rules)
    if (rule.ranks.contains(rank)) text += (text.empty() ? "" : "; ") + settings::print(rule);
  return text;
}

class Taking {
 public:
  Taking(const std::string& base, const format::TraceMeta& meta) : base_(base), meta_(meta) {}

  [[nodiscard]] bool run() {
    const settings::LoadedSettings given = settings::load_from_environment(environ);
    if (!given.problems.empty()) return true;  // said when all settings are checked
    if (!meta_.fact("setting.CONVTRACE_MODE")) return refuse("holds no settings of its run");
    say_unknown();
    const std::string_view config = meta_.fact("setting.CONVTRACE_CONFIG").value_or("");
    const std::string_view rules = meta_.fact(kRules).value_or("");
    if (!rules.empty() && !config.empty() && !given.said_by.contains(kConfig)) {
      set(kConfig, config);
      for (const std::string_view name : kOfTrace)
        if (!given.said_by.contains(name)) set(name, settings::find_setting(name)->default_text);
    }
    take(given.said_by);
    const settings::LoadedControls now = settings::load_controls(environ);
    if (now.problems.empty() && rules_text(now, meta_.rank) != rules) {
      if (given.said_by.empty())
        return refuse("the rules of its run are not those of " +
                      (config.empty() ? "any file that it names" : escape_text(config)) +
                      " now; give a file with them by --config");
      join(stays_, "the rules");
    }
    if (!stays_.empty())
      complain(MessageId::kLikeInPart, base_, stays_ + " of this command, not of that run");
    return true;
  }

 private:
  [[nodiscard]] bool refuse(const std::string& why) const {
    complain(MessageId::kNotLike, base_, why);
    return false;
  }

  /// Settings that this convtrace does not have, and those of a run that changed them.
  void say_unknown() const {
    std::string unknown;
    for (const auto& [name, value] : meta_.facts) {
      if (!name.starts_with("setting.CONVTRACE")) continue;
      const std::string variable = name.substr(kPrefix.size());
      if (settings::find_setting(variable) == nullptr) join(unknown, escape_text(variable));
    }
    if (!unknown.empty() || meta_.tool_version != CONVTRACE_VERSION)
      complain(MessageId::kLikeInPart, base_,
               "recorded by convtrace " + escape_text(meta_.tool_version) +
                   ", this is " CONVTRACE_VERSION +
                   (unknown.empty() ? "" : ", without " + unknown));
    if (meta_.fact("setting.reloads"))
      complain(MessageId::kLikeInPart, base_,
               "its settings changed during the run: the last ones are taken");
  }

  void take(const settings::SaidBy& given) {
    const settings::Settings now = settings::load_from_environment(environ).settings;
    for (const settings::SettingSpec& spec : settings::setting_table()) {
      const auto value = meta_.fact(std::string(kPrefix) + std::string(spec.name));
      const bool differs = value && *value != spec.print(now);
      const auto is_among = [&spec](std::span<const std::string_view> names) {
        return std::ranges::find(names, spec.name) != names.end();
      };
      if (!differs || is_among(kOfTrace) || is_among(kNotTaken)) continue;
      const std::string_view by =
          spec.name == kSteps && given.contains(kOverhead) ? kOverhead : spec.name;
      if (!given.contains(by)) {
        set(spec.name, *value);
      } else {
        join(stays_, std::string(by) + '=' + settings::find_setting(by)->print(now));
      }
    }
  }

  const std::string& base_;
  const format::TraceMeta& meta_;
  std::string stays_;  ///< settings that were given and differ
};

}  // namespace

bool take_settings_of(const std::string& base) {
  const auto trace = open_trace(base);
  if (trace == nullptr) return false;
  if (trace->state() == reader::TraceState::kDamaged) {
    complain(MessageId::kDamaged, base, "damaged: its settings may not be those of the whole run");
    return false;
  }
  if (trace->state() == reader::TraceState::kUnclosed) (void)report_state(*trace, base);
  return Taking(base, trace->meta()).run();
}

}  // namespace convtrace::tools
