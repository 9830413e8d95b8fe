#pragma once
/// @file settings.h
/// Every setting of convtrace, in one table: names, meaning, defaults, parsing, help and docs come
/// from it.
///
/// Place:    the injected engine reads the environment through it; `convtrace run` turns options
///           into it.
/// Threads:  plain values; load once.
/// Errors:   a bad value or an unknown CONVTRACE_* name is a problem with one clear line and the
///           nearest valid name; the caller decides what it means (plain LD_PRELOAD: the host runs
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
enum class Stacks : uint8_t { kFindings, kAll, kNone };
/// A value is to be stored and there is no memory for it.
enum class WhenFull : uint8_t { kDegrade, kBlock, kDrop };

struct Settings {
  bool enabled = true;                            // CONVTRACE
  std::string output = "convtrace-%r-%p.ctrace";  // CONVTRACE_OUTPUT
  bool overwrite = false;                         // CONVTRACE_OVERWRITE
  std::string config;                             // CONVTRACE_CONFIG
  Mode mode = Mode::kStats;                       // CONVTRACE_MODE
  bool all = false;                               // CONVTRACE_ALL
  StepSet steps;                                  // CONVTRACE_STEPS
  StepSet ranks;                                  // CONVTRACE_RANKS
  std::string include;                            // CONVTRACE_INCLUDE
  std::string exclude;                            // CONVTRACE_EXCLUDE
  bool all_kernels = false;                       // CONVTRACE_ALL_KERNELS
  std::string ops;                                // CONVTRACE_OPS
  bool optimizer_state = false;                   // CONVTRACE_OPTIMIZER_STATE
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
  std::string_view values;  ///< what may be written, for help: "0|5-8|100-120,every=50|all"
  std::string_view default_text;
  std::string_view help;  ///< one sentence
  bool reloads;           ///< a change in the file applies to a run that is under way
  /// Parses `text` into its member. @return an empty string, or why the value is bad (see
  /// set_value for the whole sentence).
  std::string (*parse)(std::string_view text, Settings& settings);
  /// @return the effective value, in the spelling parse() takes.
  std::string (*print)(const Settings& settings);
};

[[nodiscard]] std::span<const SettingSpec> setting_table();

/// @return the key of a setting in CONVTRACE_CONFIG, "max_bytes"; with `-` for `_` it is the option
/// of `convtrace run`. CONVTRACE itself is "enabled".
[[nodiscard]] std::string setting_key(const SettingSpec& spec);

/// @return the row of `name`, or null.
[[nodiscard]] const SettingSpec* find_setting(std::string_view name);

/// Parses `text` as the value of `spec` into `settings`.
/// @param spelling how the user wrote the setting: its name, its key or its option.
/// @return an empty string, or one line that names the value, the setting and what may be written.
[[nodiscard]] std::string set_value(const SettingSpec& spec, std::string_view spelling,
                                    std::string_view text, Settings& settings);

/// Set by `convtrace run` to its mark (run_mark.h): the engine says where the trace goes and at the
/// end what is in it, and the command's own process why there is none.
inline constexpr std::string_view kAnnounceName = "CONVTRACE_RUN";

/// Names that begin with CONVTRACE_ but are convtrace's own business between its parts, never a
/// user's mistake.
[[nodiscard]] bool is_internal_name(std::string_view name);

/// Which settings were given, by their variables: "rules.toml:3: " where a file says it, else
/// empty.
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
