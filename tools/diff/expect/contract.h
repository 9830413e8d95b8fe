#pragma once
/// @file contract.h
/// The contract of a change: what two runs must have in common, what must differ, what must run.
///
///     same_program = true          # the runs may be of one program; else equal runs break it
///     [[unchanged]]                # each value that both runs have agrees
///     scope = "encoder"            # a module and all below it; a glob, or re: and an expression
///     phase = ["forward", "loss"]  # one or more
///     steps = "0-9"                # as for CONVTRACE_STEPS
///     slot = "param:*"             # also op
///     to = "bit"                   # else up to rounding
///     [[changed]]                  # a value differs by more than rounding, or only one run has it
///     scope = "head"               # the same keys; to = "bit": any difference counts
///     [[changed]]
///     code = "model.py*"           # a file, or FILE: class NAME, has other code
///     [[runs]]                     # in the candidate
///     op = "my::attention"         # scope, phase, steps, slot, op; each_step = true
///     [[runs]]
///     code = "model.py: class A"   # a module class whose module was called
///     [[never]]
///     findings = "warning"         # findings of this level or a worse one that the baseline lacks
///     op = "aten::nonzero"         # in the candidate: scope, phase, steps, slot, op
///     slower = "5%"                # the candidate's step, by the median
///
/// Source:   docs/expect.md.
/// Errors:   one line, with file and line number.

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/base/level.h"
#include "format/model/event_enums.h"
#include "format/settings/pattern.h"
#include "format/settings/step_set.h"

namespace convtrace::diff {

inline constexpr size_t kPhasesOfClause = format::kEnumCount<format::Phase>;

/// The values that a clause is about: those that match every given part.
struct Where {
  /// Matches a module's path, or that of a module around it. `root_alone`: the pattern is "".
  std::optional<settings::Pattern> scope{};
  bool root_alone = false;
  std::optional<settings::Pattern> slot{}, op{};
  std::bitset<kPhasesOfClause> phases{};  ///< none: all
  settings::StepSet steps{};

  [[nodiscard]] bool has_scope(std::string_view path) const;
  [[nodiscard]] bool has_phase(format::Phase phase) const {
    return phases.none() || phases.test(static_cast<size_t>(phase));
  }
};

/// X(enumerator, spelling): the tables of the file.
#define CONVTRACE_CLAUSES(X) \
  X(kUnchanged, "unchanged") \
  X(kChanged, "changed")     \
  X(kRuns, "runs")           \
  X(kNever, "never")         \
  X(kUnlike, "different")

/// kUnlike: the runs differ in something; not written in the file.
enum class ClauseKind : uint8_t {
#define CONVTRACE_X(name, text) name,
  CONVTRACE_CLAUSES(CONVTRACE_X)
#undef CONVTRACE_X
};
[[nodiscard]] std::string_view to_string(ClauseKind kind);

struct Clause {
  ClauseKind kind = ClauseKind::kUnchanged;
  Where where{};
  bool to_the_bit = false;
  bool each_step = false;                   ///< runs: in every step with values
  std::optional<settings::Pattern> code{};  ///< then `where` is not used
  std::optional<format::Level> findings{};
  std::optional<double> slower{};  ///< 0.05 for "5%"
  std::string text{};              ///< its keys, for reports: `scope = "head", to = "bit"`
  unsigned line = 0;               ///< in the file; 0: not written there
};

struct Contract {
  std::string path;
  std::vector<Clause> clauses{};  ///< in the order of the tables above, then of the file
};

/// @param error  one line, escaped. @return false if the file cannot be used.
[[nodiscard]] bool read_contract(const std::string& path, Contract& contract, std::string& error);

}  // namespace convtrace::diff
