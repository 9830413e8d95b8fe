#pragma once
/// @file scope_map.h
/// Maps modules of the candidate to modules of the baseline where their names differ: a renamed
/// module, a wrapper around the whole model, a layer that was inserted into a numbered list.
///
/// Two modules match if their outputs and parameters have the same names, shapes and types; the
/// score is higher with the same name, the same initial weights or the same outputs. If both runs
/// have the same set of names, no module is mapped. Pairs from the user (`--map`) come first.
///
/// Place:    rank_diff.h feeds it step by step; align.h translates the candidate's keys with it.
/// Source:   docs/comparison.md "Alignment".

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/model/definitions.h"
#include "tools/trace/model/record.h"
#include "tools/trace/names/renames.h"

namespace convtrace::diff {

/// A module with its names in both runs.
struct RenamedModule {
  std::string base, cand;
  float confidence = 1;
  bool operator==(const RenamedModule&) const = default;
};

/// A module of the candidate with its name in the baseline.
struct ScopePair {
  format::StringId base;
  float confidence = 1;
};

class ScopeMap {
 public:
  /// @param names  texts of all records' ids; must outlive this. @param renames  by the user.
  ScopeMap(format::Definitions& names, std::vector<ScopeRename> renames)
      : names_(names), renames_(std::move(renames)) {}

  /// Maps the modules of a step that both runs have. Without new modules the cost is one look-up a
  /// record.
  void learn(const StepRecords& base, const StepRecords& cand);

  /// @return whether every module has the same name in both runs.
  [[nodiscard]] bool is_identity() const { return pairs_.empty(); }
  /// @return the baseline's module. If the candidate's name belongs to another module of the
  /// baseline, an id without a text.
  [[nodiscard]] ScopePair of(format::StringId cand) const;
  /// By the candidate's id.
  [[nodiscard]] const std::unordered_map<uint32_t, ScopePair>& renamed() const { return pairs_; }

 private:
  struct Module;

  /// @return modules without a partner, ordered by their first records.
  [[nodiscard]] std::vector<Module> modules_of(const StepRecords& step,
                                               const std::unordered_set<uint32_t>& settled) const;
  void rename(std::span<const Module> cand);
  void settle(format::StringId base, format::StringId cand, float confidence);

  format::Definitions& names_;
  std::vector<ScopeRename> renames_;
  std::vector<bool> base_seen_, cand_seen_;                   ///< by id
  std::unordered_set<uint32_t> base_settled_, cand_settled_;  ///< have a partner
  std::unordered_map<uint32_t, ScopePair>
      pairs_;                           ///< pairs with different names, by the candidate's id
  std::unordered_set<uint32_t> taken_;  ///< the baseline's ids in pairs_
};

}  // namespace convtrace::diff
