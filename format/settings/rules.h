#pragma once
/// @file rules.h
/// Rules for kernels and scopes: which values to record and when, and which findings to suppress.
///
/// Place:    `[[rule]]` tables of the TOML file that CONVTRACE_CONFIG names; compiled once, matched
///           once per kernel and scope.
/// Threads:  immutable after loading.
/// Errors:   problems have file and line; a file with a problem gives no rules.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/dtype.h"
#include "format/model/events.h"
#include "format/settings/pattern.h"
#include "format/settings/step_set.h"

namespace convtrace::settings {

struct Rule {
  std::string where;              ///< "rules.toml:7"
  uint32_t number = 0;            ///< in its RuleBook
  std::optional<Pattern> kernel;  ///< demangled name, mangled name or family
  std::optional<Pattern> scope;
  StepSet steps;
  StepSet ranks;
  /// Capture level of the operands that the rule names; unset: statistics. A rule that names no
  /// operand applies to everything that the kernel writes.
  std::optional<format::Capture> capture;
  bool outputs_auto = false;
  std::vector<uint32_t> outputs;  ///< kernel parameter positions
  std::vector<uint32_t> inputs;   ///< kernel parameter positions of values read before the launch
  std::optional<format::DType> dtype;
  bool inplace = false;
  std::optional<uint32_t> samples;  ///< unset: CONVTRACE_SAMPLES
  bool suppress = false;
  /// Not kNo: made from a setting, so that INCLUDE and EXCLUDE apply to it. kTyped: of kernels whose
  /// parameters have known types.
  enum class AllKernels : uint8_t { kNo, kTyped, kEach };
  AllKernels all_kernels = AllKernels::kNo;
};

/// @return whether the rule asks for values; other rules declare or suppress.
[[nodiscard]] inline bool takes_values(const Rule& rule) {
  return rule.capture || rule.outputs_auto || !rule.outputs.empty() || !rule.inputs.empty();
}

/// CONVTRACE_ALL_KERNELS, or CONVTRACE_COMPILED=all, in the form of a rule behind all others.
[[nodiscard]] Rule rule_for_all_kernels(Rule::AllKernels which, format::Capture capture);

/// @return the rule on one line: rules with the same meaning have the same text, wherever they are
/// written.
[[nodiscard]] std::string print(const Rule& rule);

struct LoadedRules {
  std::vector<Rule> rules;
  std::vector<std::string> problems;  ///< "file:line: ...", one complete line each
};

/// One key of a [[rule]] table.
struct RuleKeySpec {
  std::string_view name;
  std::string_view values;
  std::string_view help;  ///< one sentence
};

[[nodiscard]] std::vector<RuleKeySpec> rule_keys();

/// Reads the `[[rule]]` tables of a TOML file. Its other keys are settings, which
/// load_from_environment reads and checks.
[[nodiscard]] LoadedRules load_rules(const std::string& path);

}  // namespace convtrace::settings
