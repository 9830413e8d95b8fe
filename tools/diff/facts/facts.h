#pragma once
/// @file facts.h
/// Compares the facts of two programs that are not tensors: settings of modules and optimizers,
/// states of random generators, code. They are certain where values only give hints.
///
/// Place:    diff.cpp, one FactDiff a rank, joined in joined.cpp. Reads both traces of a rank
///           again, but only chunks with facts, and none if the step sums show that everything is
///           equal.
/// Memory:   the current facts of both runs; at most kMaxFactDifferences differences.
/// Threads:  not thread-safe.
/// Source:   names of facts: format/FORMAT.md section 6.6.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/meta.h"
#include "tools/diff/model/step_offset.h"
#include "tools/trace/model/generated_call.h"

namespace convtrace::diff {

struct RenamedModule;

enum class FactKind : uint8_t { kModule, kOptimizer, kGenerator, kCode };
[[nodiscard]] std::string_view to_string(FactKind value);

struct FactDifference {
  FactKind kind = FactKind::kModule;
  /// Key of a setting, or `class`; for a generator `torch`; for code a file, with the class if one
  /// of its module classes differs: `model.py: class Attention`.
  std::string name{};
  std::optional<std::string> base{}, cand{};  ///< nullopt: that run does not have the key or file
  uint32_t rank = 0;
  uint32_t step = 0;  ///< the first step in which they differ; 0 for code
  /// The modules' names in the baseline, with `*` where only numbers differ; `optimizer.0.*` for
  /// the groups of an optimizer; for code `optimizer.*` where an optimizer is of that class.
  std::string scope{};
  std::string
      first{};  ///< the first of these modules in order of execution; a group's first parameter
  std::string module_class{};  ///< class of the module or optimizer, without its Python module
  uint64_t modules = 1;        ///< number of modules, or of groups of optimizers
  /// Of an optimizer with several groups: the baseline's names of the parameters whose setting differs.
  std::vector<std::string> parameters{};
  bool from_the_start = false;  ///< for a generator: its states never agreed
  /// For code of which both runs recorded the source: its unified diff (line_diff.h).
  std::vector<std::string> lines{};
  /// Both runs have the setting, and it changes what is computed, not only how.
  bool configuration = false;
};
inline constexpr size_t kMaxFactDifferences = 1000;

/// In the place of a module's class, for the function that computed a loss: with ":1" behind it for
/// that of a step's second backward pass. No class has such a name.
inline constexpr std::string_view kOfLoss = "the loss";

/// Name of a fact and of a difference: the hooks that a program has registered on a module.
inline constexpr std::string_view kHooks = "hooks";

/// The place of a module's code; unknown texts are empty.
struct CodePlace {
  std::string module_class;  ///< without its Python module
  std::string qualified_class{};
  std::string forward{}, call{}, backward{};  ///< the last: the line that passes the loss back
  std::string hooks{};                        ///< "forward hook log (model.py:12)"
  bool changed = false;                       ///< the class has other code in the other run
  std::string source{};       ///< of the class, as recorded: its first line, then the lines
  std::string op_code{};      ///< for an op of a class of the program that has: how it changed
  GeneratedCall generated{};  ///< for a value inside a compiled region
};

/// @return one line, not escaped: "Dropout p: 0.1 | 0.12 in blocks.*.drop (6 modules)".
[[nodiscard]] std::string fact_text(const FactDifference& fact);
/// @return "LayerNorm, model.py:41, called at model.py:88"; "" if the place is unknown.
[[nodiscard]] std::string code_text(const CodePlace& place);
/// @return one line, not escaped: "cpp_fused_gelu_4 made of linear_1, gelu at model.py:6".
[[nodiscard]] std::string generated_text(const GeneratedCall& call);

/// The results of a FactDiff, to be joined with those of other ranks.
struct FactState {
  std::vector<FactDifference> all{};  ///< differences of single modules and groups
  /// By scope; baseline first, candidate second.
  std::map<std::string, std::array<CodePlace, 2>> places{};
  std::map<std::string, GeneratedCall> generated{};  ///< by "SCOPE.OP", the candidate's first
  std::vector<std::string> optimizers{};             ///< their classes, some more than once
  std::map<std::string, std::string> sources{};      ///< by code_name(), the candidate's first
};

class FactDiff {
 public:
  /// Compares the fingerprints of both runs' code.
  void compare_code(const format::TraceMeta& base, const format::TraceMeta& cand);
  /// @param offset  of the candidate's steps; all step numbers here are shifted by it.
  /// @param last_step  the last step whose facts are compared. @param parts  the runs part in it:
  /// what was drawn from generators in it is compared, too. @param renamed  modules with another
  /// name in the candidate.
  /// @return false if a trace cannot be read.
  [[nodiscard]] bool compare_rank(const std::string& base_path, const std::string& cand_path,
                                  uint32_t rank, const StepOffset& offset, uint32_t last_step,
                                  bool parts, std::span<const RenamedModule> renamed);

  /// Adds the results of another rank.
  void add(FactState other);
  [[nodiscard]] FactState take() { return std::move(state_); }

  /// @return all differences; equal ones of several ranks and modules are joined.
  [[nodiscard]] std::vector<FactDifference> differences() const;
  /// @return ("SCOPE", "OP") of calls in compiled regions that drop a view
  /// (GeneratedCall::drops_view).
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> dropped_views() const;
  /// @param scope  the baseline's name of a module.
  [[nodiscard]] CodePlace place_of(const std::string& scope, const std::string& op) const;
  /// @return the code of the innermost module around a scope that was called itself; empty if none was.
  [[nodiscard]] CodePlace caller_of(std::string scope) const;

 private:
  class Rank;
  void add(FactDifference fact);

  FactState state_;
};

}  // namespace convtrace::diff
