#pragma once
/// @file settings.h
/// Every setting of convtrace, in one table, from which names, meaning, defaults, parsing, help and
/// docs are made.
///
/// Place:    the engine reads the environment with it; `convtrace run` sets the environment from
///           options with it.
/// Threads:  plain values; load once.
/// Errors:   an invalid value or an unknown CONVTRACE_* name is a problem: one line with the
///           nearest valid name. The caller decides the consequence (plain LD_PRELOAD: the host runs
///           untraced; `convtrace run`: exit 2).

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/events.h"
#include "format/settings/setting_values.h"
#include "format/settings/step_set.h"

namespace convtrace::settings {

enum class Mode : uint8_t { kOff, kLaunches, kHash, kStats, kSnapshot };
enum class CpuAlloc : uint8_t { kAuto, kOn, kOff };
enum class Compiled : uint8_t { kOff, kCalls, kAll };
enum class Stacks : uint8_t { kFindings, kAll, kNone };
/// Treatment of a value that is to be stored when there is no memory for it.
enum class WhenFull : uint8_t { kDegrade, kBlock, kDrop };

struct Settings {
  bool enabled = true;                            // CONVTRACE
  std::string output = "convtrace-%r-%p.ctrace";  // CONVTRACE_OUTPUT
  bool overwrite = false;                         // CONVTRACE_OVERWRITE
  std::string config;                             // CONVTRACE_CONFIG
  Mode mode = Mode::kStats;                       // CONVTRACE_MODE
  bool all = false;                               // CONVTRACE_ALL
  StepSet steps;                                  // CONVTRACE_STEPS
  double overhead = 0;                            // CONVTRACE_OVERHEAD; a fraction, 0: none asked
  StepSet ranks;                                  // CONVTRACE_RANKS
  std::string include;                            // CONVTRACE_INCLUDE
  std::string exclude;                            // CONVTRACE_EXCLUDE
  bool all_kernels = false;                       // CONVTRACE_ALL_KERNELS
  std::string ops;                                // CONVTRACE_OPS
  Compiled compiled = Compiled::kCalls;           // CONVTRACE_COMPILED
  bool optimizer_state = false;                   // CONVTRACE_OPTIMIZER_STATE
  bool environment = true;                        // CONVTRACE_ENVIRONMENT
  bool source = false;                            // CONVTRACE_SOURCE
  uint64_t max_bytes = 0;  // CONVTRACE_MAX_BYTES; 0: min(20G, half of the free space)
  Ring ring;               // CONVTRACE_RING
  Spike spike;             // CONVTRACE_SPIKE
  uint32_t samples = 8;    // CONVTRACE_SAMPLES
  uint64_t snapshot_memory = uint64_t{512} << 20;  // CONVTRACE_SNAPSHOT_MEMORY
  WhenFull snapshot_full = WhenFull::kDegrade;     // CONVTRACE_SNAPSHOT_FULL
  CpuAlloc cpu_alloc = CpuAlloc::kAuto;            // CONVTRACE_CPU_ALLOC
  Stacks stacks = Stacks::kFindings;               // CONVTRACE_STACKS
  std::string cupti;                               // CONVTRACE_CUPTI
  bool poison = false;                             // CONVTRACE_POISON
  bool quarantine = false;                         // CONVTRACE_QUARANTINE
  bool strict_alloc = false;                       // CONVTRACE_STRICT_ALLOC
  format::Level log = format::Level::kWarning;     // CONVTRACE_LOG
  std::string log_file;                            // CONVTRACE_LOG_FILE
};

/// One row of the table.
struct SettingSpec {
  std::string_view name;    ///< "CONVTRACE_STEPS"
  std::string_view values;  ///< valid values, for help: "0|5-8|100-120,every=50|all"
  std::string_view default_text;
  std::string_view help;  ///< one sentence
  bool reloads;           ///< a change in the file applies to the running program
  /// Parses `text` into its member. @return "", or why the value is invalid (set_value adds the
  /// rest of the message).
  std::string (*parse)(std::string_view text, Settings& settings);
  /// @return the value in effect, in the spelling that parse() accepts.
  std::string (*print)(const Settings& settings);
};

[[nodiscard]] std::span<const SettingSpec> setting_table();

/// @return the key of a setting in the file, "max_bytes"; with `-` for `_` it is the option of
/// `convtrace run`. The key of CONVTRACE is "enabled".
[[nodiscard]] std::string setting_key(const SettingSpec& spec);

/// @return the row of `name`, or null.
[[nodiscard]] const SettingSpec* find_setting(std::string_view name);

/// Parses `text` as the value of `spec` into `settings`.
/// @param spelling  how the user wrote the setting: its variable, its key or its option.
/// @return "", or one line with the value, the setting and the valid values.
[[nodiscard]] std::string set_value(const SettingSpec& spec, std::string_view spelling,
                                    std::string_view text, Settings& settings);

/// Set by `convtrace run` to its mark (run_mark.h). Then the engine prints where the trace goes
/// and, at the end, what it contains; the command's own process prints why there is none.
inline constexpr std::string_view kAnnounceName = "CONVTRACE_RUN";

/// @return whether a name that begins with CONVTRACE_ is used between parts of convtrace, and so is
/// no mistake of the user.
[[nodiscard]] bool is_internal_name(std::string_view name);

/// The settings that were given, by variable, with their place: "rules.toml:3: " for a file, else
/// "".
using SaidBy = std::map<std::string, std::string, std::less<>>;

struct LoadedSettings {
  Settings settings;
  SaidBy said_by;
  std::vector<std::string> problems;  ///< one complete line each, without "convtrace:"
};

/// Reads the file that CONVTRACE_CONFIG names, then every CONVTRACE* entry of a null-terminated
/// environment ("NAME=value"), which wins. An empty value counts as unset.
[[nodiscard]] LoadedSettings load_from_environment(const char* const* environment);

}  // namespace convtrace::settings
