#pragma once
/// @file facts.h
/// What differs between two programs that is no tensor: settings of modules and optimizers, states
/// of random generators, code. They say for sure what values only suggest.
///
/// Place:    diff.cpp, a FactDiff for a whole diff. Reads both traces of a rank once more, of each
///           the chunks that hold facts alone; nothing where the step sums say that all is equal.
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
#include <vector>

#include "format/model/meta.h"

namespace convtrace::diff {

struct RenamedModule;

enum class FactKind : uint8_t { kModule, kOptimizer, kGenerator, kCode };
[[nodiscard]] std::string_view to_string(FactKind value);

struct FactDifference {
  FactKind kind = FactKind::kModule;
  /// Key of a setting, or `class`; of a generator `torch`; of code a file and, if one of its module
  /// classes is another, that: `model.py: class Attention`.
  std::string name{};
  std::optional<std::string> base{}, cand{};  ///< nullopt: that run has no such key, file
  uint32_t rank = 0;
  uint32_t step = 0;  ///< the first in which they differ; of code 0
  /// Baseline's names of the modules, `*` where numbers differ; `optimizer.0.*` of an optimizer's
  /// groups.
  std::string scope{};
  std::string first{};          ///< the module, in order of execution, that has it first
  std::string module_class{};   ///< or the optimizer's: without its Python module
  uint64_t modules = 1;         ///< how many, or how many groups of optimizers
  bool from_the_start = false;  ///< of a generator: its states never agreed
  /// Both runs have the setting, and it says what is computed, not only how.
  bool configuration = false;
};
inline constexpr size_t kMaxFactDifferences = 1000;

/// Where the code of a module is; texts are empty where that is not known.
struct CodePlace {
  std::string module_class;  ///< without its Python module
  std::string qualified_class;
  std::string forward, call;
  bool changed = false;  ///< the class does something else in the other run
};

/// @return one line, not escaped: "Dropout p: 0.1 | 0.12 in blocks.*.drop (6 modules)".
[[nodiscard]] std::string fact_text(const FactDifference& fact);
/// @return "LayerNorm, model.py:41, called at model.py:88"; "" if nothing is known.
[[nodiscard]] std::string code_text(const CodePlace& place);

class FactDiff {
 public:
  /// Fingerprints of the code of both runs.
  void compare_code(const format::TraceMeta& base, const format::TraceMeta& cand);
  /// @param last_step  up to which facts are compared. @param renamed  modules of the candidate
  /// that go by another name in the baseline.
  /// @return false if a trace cannot be read.
  [[nodiscard]] bool compare_rank(const std::string& base_path, const std::string& cand_path,
                                  uint32_t rank, uint32_t last_step,
                                  std::span<const RenamedModule> renamed);

  /// @return all differences, grouped: of ranks and modules that differ in the same way one.
  [[nodiscard]] std::vector<FactDifference> differences() const;
  /// @param scope  the baseline's name of a module.
  [[nodiscard]] CodePlace place_of(const std::string& scope) const;

 private:
  class Rank;
  void add(FactDifference fact);

  std::vector<FactDifference> all_;  ///< of single modules and groups
  /// By scope, then of baseline and candidate.
  std::map<std::string, std::array<CodePlace, 2>> places_;
};

}  // namespace convtrace::diff
