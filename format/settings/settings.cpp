#include "format/settings/settings.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "format/settings/nearest.h"
#include "format/settings/toml_file.h"

namespace convtrace::settings {
namespace {

constexpr std::string_view kPrefix = "CONVTRACE";

constexpr std::string_view kModes[] = {"off", "launches", "hash", "stats", "snapshot"};
constexpr std::string_view kCpuAllocs[] = {"auto", "on", "off"};
constexpr std::string_view kCompiled[] = {"off", "calls", "all"};
constexpr std::string_view kStacks[] = {"findings", "all", "none"};
constexpr std::string_view kWhenFull[] = {"degrade", "block", "drop"};
constexpr std::string_view kLevels[] = {"error", "warn", "info", "debug"};

/// Each kind of value as a pair of functions over a member of Settings.
template <bool Settings::*Member>
struct Flag {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_flag(text, s.*Member);
  }
  static std::string print(const Settings& s) { return s.*Member ? "1" : "0"; }
};

template <std::string Settings::*Member>
struct Text {
  static std::string parse(std::string_view text, Settings& s) {
    s.*Member = text;
    return {};
  }
  static std::string print(const Settings& s) { return s.*Member; }
};

template <std::string Settings::*Member, std::string (*Check)(std::string_view)>
struct CheckedText : Text<Member> {
  static std::string parse(std::string_view text, Settings& s) {
    std::string why = Check(text);
    if (why.empty()) s.*Member = text;
    return why;
  }
};

/// `Names` in the order of the enumerators of `Member`.
template <auto Member, const auto& Names>
struct Choice {
  static std::string parse(std::string_view text, Settings& s) {
    size_t index = 0;
    std::string why = parse_choice(text, Names, index);
    if (why.empty()) s.*Member = static_cast<std::decay_t<decltype(s.*Member)>>(index);
    return why;
  }
  static std::string print(const Settings& s) {
    return std::string(Names[static_cast<size_t>(s.*Member)]);
  }
};

struct Steps {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_steps(text, s.steps);
  }
  static std::string print(const Settings& s) { return s.steps.steps_text(); }
};

struct Ranks {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_ranks(text, s.ranks);
  }
  static std::string print(const Settings& s) { return s.ranks.ranks_text(); }
};

struct Overhead {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_percent(text, s.overhead);
  }
  static std::string print(const Settings& s) { return print_percent(s.overhead); }
};

struct MaxBytes {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_size(text, s.max_bytes);
  }
  static std::string print(const Settings& s) { return print_size(s.max_bytes); }
};

struct SnapshotMemory {
  static std::string parse(std::string_view text, Settings& s) {
    uint64_t bytes = 0;
    std::string why = parse_size(text, bytes);
    if (why.empty() && bytes == 0) why = "it must be a size";
    if (why.empty()) s.snapshot_memory = bytes;
    return why;
  }
  static std::string print(const Settings& s) { return print_size(s.snapshot_memory); }
};

struct RingValue {
  static std::string parse(std::string_view text, Settings& s) { return parse_ring(text, s.ring); }
  static std::string print(const Settings& s) { return print_ring(s.ring); }
};

struct SpikeValue {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_spike(text, s.spike);
  }
  static std::string print(const Settings& s) { return print_spike(s.spike); }
};

struct Samples {
  static std::string parse(std::string_view text, Settings& s) {
    return parse_count(text, kMaxSamples, s.samples);
  }
  static std::string print(const Settings& s) { return std::to_string(s.samples); }
};

template <typename Kind>
constexpr SettingSpec row(std::string_view name, std::string_view values,
                          std::string_view default_text, std::string_view help) {
  return {name, values, default_text, help, false, &Kind::parse, &Kind::print};
}

/// A row for a setting whose change in the file applies at once.
constexpr SettingSpec live(SettingSpec spec) {
  spec.reloads = true;
  return spec;
}

using S = Settings;
constexpr SettingSpec kTable[] = {
    row<Flag<&S::enabled>>("CONVTRACE", "0|1", "1", "0 disables everything."),
    row<CheckedText<&S::output, check_output>>(
        "CONVTRACE_OUTPUT", "PATTERN", "convtrace-%r-%p.ctrace",
        "Trace file of each process; %h host, %p process id, %r rank; relative "
        "to the folder at process start."),
    row<Flag<&S::overwrite>>("CONVTRACE_OVERWRITE", "0|1", "0",
                             "1 replaces an older trace of the same name."),
    row<Text<&S::config>>("CONVTRACE_CONFIG", "FILE", "",
                          "TOML file of settings and [[rule]] tables."),
    live(row<Choice<&S::mode, kModes>>("CONVTRACE_MODE", "off|launches|hash|stats|snapshot",
                                       "stats",
                                       "How much is recorded; each mode includes the ones before "
                                       "it. snapshot needs a rule or --all.")),
    live(row<Flag<&S::all>>(
        "CONVTRACE_ALL", "0|1", "0",
        "1 lets mode snapshot store every value, not only those that rules name.")),
    live(row<Steps>(
        "CONVTRACE_STEPS", "0|5-8|100-120,every=50|all", "all",
        "Steps whose values are taken: numbers and inclusive ranges between |, 5- is open.")),
    row<Overhead>(
        "CONVTRACE_OVERHEAD", "PERCENT|5%", "",
        "How much slower a run may get: what a step with values costs is measured in the first "
        "steps, then values are taken of one step of 1, 2, 5, 10, 20, 50 or 100. Trace the other "
        "run with `convtrace run --like`."),
    row<Ranks>("CONVTRACE_RANKS", "0-3,7|all", "all", "Ranks that write a trace."),
    live(row<CheckedText<&S::include, check_patterns>>(
        "CONVTRACE_INCLUDE", "PATTERN[;PATTERN...]", "",
        "Only kernels and scopes that match a glob or re:EXPRESSION; both are judged, so patterns "
        "of modules alone leave no launch.")),
    live(row<CheckedText<&S::exclude, check_patterns>>(
        "CONVTRACE_EXCLUDE", "PATTERN[;PATTERN...]", "",
        "Not the kernels and scopes that match, applied after the inclusion.")),
    row<Flag<&S::all_kernels>>("CONVTRACE_ALL_KERNELS", "0|1", "0",
                               "Values of what every GPU kernel writes, found by hashes, beside "
                               "those that rules ask for."),
    row<CheckedText<&S::ops, check_patterns>>(
        "CONVTRACE_OPS", "PATTERN[;PATTERN...]", "",
        "Inputs and outputs of every PyTorch operation inside the modules that match, forward and "
        "backward: slow, for narrowing down."),
    row<Choice<&S::compiled, kCompiled>>(
        "CONVTRACE_COMPILED", "off|calls|all", "calls",
        "What is recorded inside regions that torch.compile made with Inductor: operations that "
        "they call, or fused kernels, too; all: also what Triton kernels write."),
    row<Flag<&S::optimizer_state>>("CONVTRACE_OPTIMIZER_STATE", "0|1", "0",
                                   "What the optimizer keeps of each parameter, after each step."),
    row<Flag<&S::environment>>("CONVTRACE_ENVIRONMENT", "0|1", "1",
                               "Hashes of the environment's variables, without those whose names "
                               "look secret, so that a comparison names one that differs."),
    row<Flag<&S::source>>(
        "CONVTRACE_SOURCE", "0|1", "0",
        "Source code of the program's files and of the classes of its modules, so that a "
        "comparison shows the lines that changed."),
    row<MaxBytes>("CONVTRACE_MAX_BYTES", "BYTES|20G|auto", "auto",
                  "Largest trace of one process; auto is 20G or half of the free space, if that is "
                  "less."),
    row<RingValue>("CONVTRACE_RING", "N[,nan,alias,signal,USR2,spike]", "",
                   "Flight recorder: keep the last N steps in memory until a trigger."),
    row<SpikeValue>("CONVTRACE_SPIKE", "SIGMA[,ABSOLUTE]", "6,1000000",
                    "A loss is a spike so many deviations above the losses before it, or above "
                    "ABSOLUTE."),
    row<Samples>("CONVTRACE_SAMPLES", "0..4096", "8", "Raw values kept of each tensor."),
    row<SnapshotMemory>("CONVTRACE_SNAPSHOT_MEMORY", "BYTES|512M", "512M",
                        "Host memory for tensor values on their way into the trace."),
    row<Choice<&S::snapshot_full, kWhenFull>>(
        "CONVTRACE_SNAPSHOT_FULL", "degrade|block|drop", "degrade",
        "When that is full: keep the statistics alone, wait up to 10 s, or leave the record out."),
    row<Choice<&S::cpu_alloc, kCpuAllocs>>(
        "CONVTRACE_CPU_ALLOC", "auto|on|off", "auto",
        "Reports of PyTorch's CPU allocator; auto: until there is a CUDA context."),
    row<Choice<&S::stacks, kStacks>>("CONVTRACE_STACKS", "findings|all|none", "findings",
                                     "Which records carry call stacks."),
    row<Text<&S::cupti>>("CONVTRACE_CUPTI", "FILE", "",
                         "libcupti to use, whichever others there are."),
    row<Flag<&S::poison>>(
        "CONVTRACE_POISON", "0|1", "0",
        "Fill memory with a pattern when it is given out, and with 0xFF when it is given back."),
    row<Flag<&S::quarantine>>("CONVTRACE_QUARANTINE", "0|1", "0",
                              "Delay frees, so that addresses are not reused at once; a GPU needs "
                              "--strict-alloc for it."),
    row<Flag<&S::strict_alloc>>("CONVTRACE_STRICT_ALLOC", "0|1", "0",
                                "Run frameworks without their caching allocator."),
    row<Choice<&S::log, kLevels>>("CONVTRACE_LOG", "error|warn|info|debug", "warn",
                                  "What convtrace says on stderr."),
    row<Text<&S::log_file>>("CONVTRACE_LOG_FILE", "FILE", "", "Say it in this file instead."),
};

bool is_convtrace_name(std::string_view name) {
  return name == kPrefix || (name.starts_with(kPrefix) && name[kPrefix.size()] == '_');
}

std::string unknown_setting(std::string_view name) {
  std::string_view names[std::size(kTable)];
  std::transform(std::begin(kTable), std::end(kTable), names,
                 [](const SettingSpec& spec) { return spec.name; });
  return "unknown setting " + quoted(name) + "; " +
         suggestion(name, names, "`convtrace run --help` lists them");
}

/// If an environment has a variable twice, the first one counts, as for getenv.
std::string_view first_value(const char* const* environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

/// @return the value in the spelling of the environment; nullopt for tables, arrays, dates.
std::optional<std::string> spelled(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "1" : "0";
  return std::nullopt;
}

const SettingSpec* find_by_key(std::string_view key) {
  const auto table = setting_table();
  const auto found = std::find_if(table.begin(), table.end(), [key](const SettingSpec& spec) {
    return setting_key(spec) == key;
  });
  return found == table.end() ? nullptr : &*found;
}

std::string unknown_key(std::string_view key) {
  const std::string problem = "unknown key " + quoted(key) + "; ";
  if (const SettingSpec* const spec = find_setting(key))
    return problem + "in a file it is " + setting_key(*spec);
  std::vector<std::string> keys{"rule"};
  for (const SettingSpec& spec : setting_table()) keys.push_back(setting_key(spec));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  return problem + suggestion(key, views, "`convtrace run --help` lists them");
}

/// @return an empty string, or the problem of this entry.
std::string apply_entry(std::string_view key, const toml::node& node, Settings& settings) {
  const SettingSpec* spec = find_by_key(key);
  if (spec == nullptr) return unknown_key(key);
  if (spec->name == "CONVTRACE_CONFIG") return "config names this file and cannot stand in it";
  const auto text = spelled(node);
  if (!text) return quoted(key) + " takes a text or a number: " + std::string(spec->values);
  return set_value(*spec, key, *text, settings);
}

/// Applies the settings among the root keys of `path`; `[[rule]]` tables are left to load_rules. Problems
/// are added as "file:line: ..." lines; the good keys of a file with problems still apply.
void apply_config_file(const std::string& path, LoadedSettings& loaded) {
  std::vector<std::string>& problems = loaded.problems;
  const auto root = read_toml(path, problems);
  if (!root) return;
  for (const auto& [key, node] : *root) {
    if (key.str() == "rule") continue;
    const std::string why = apply_entry(key.str(), node, loaded.settings);
    if (!why.empty()) problems.push_back(at(path, key.source(), why));
    if (const SettingSpec* const spec = find_by_key(key.str()))
      loaded.said_by[std::string(spec->name)] = at(path, key.source(), "");
  }
}

}  // namespace

std::span<const SettingSpec> setting_table() { return kTable; }

std::string setting_key(const SettingSpec& spec) {
  if (spec.name == kPrefix) return "enabled";
  std::string key(spec.name.substr(kPrefix.size() + 1));
  for (char& c : key) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return key;
}

const SettingSpec* find_setting(std::string_view name) {
  const auto found = std::find_if(std::begin(kTable), std::end(kTable),
                                  [name](const SettingSpec& spec) { return spec.name == name; });
  return found == std::end(kTable) ? nullptr : found;
}

std::string set_value(const SettingSpec& spec, std::string_view spelling, std::string_view text,
                      Settings& settings) {
  const std::string why = spec.parse(text, settings);
  if (why.empty()) return {};
  return "bad value " + quoted(text) + " for " + std::string(spelling) + ": " + why + "; write " +
         std::string(spec.values);
}

bool is_internal_name(std::string_view name) {
  return name == "CONVTRACE_CORE" || name == kAnnounceName;
}

LoadedSettings load_from_environment(const char* const* environment) {
  LoadedSettings loaded;
  if (const std::string_view path = first_value(environment, "CONVTRACE_CONFIG"); !path.empty())
    apply_config_file(std::string(path), loaded);
  for (const SettingSpec& spec : kTable) {
    const std::string_view text = first_value(environment, spec.name);
    if (text.empty()) continue;
    std::string problem = set_value(spec, spec.name, text, loaded.settings);
    if (!problem.empty()) loaded.problems.push_back(std::move(problem));
    loaded.said_by[std::string(spec.name)].clear();
  }
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!is_convtrace_name(name) || is_internal_name(name) || find_setting(name)) continue;
    loaded.problems.push_back(unknown_setting(name));
  }
  return loaded;
}

}  // namespace convtrace::settings
