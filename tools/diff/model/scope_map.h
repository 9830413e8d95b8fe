#pragma once
/// @file scope_map.h
/// Which module of the candidate is which module of the baseline, where their names say otherwise:
/// a renamed module, a wrapper around all, a layer inserted into a numbered list.
///
/// Two modules fit when they have outputs and parameters of the same names, shapes and types, and
/// fit better with the same name, the same initial weights or the same outputs. Equal sets of names
/// are taken as they are. What the user says (`--map`) comes first.
///
/// Place:    rank_diff.h feeds it step by step; align.h translates the candidate's keys with it.
/// Source:   docs/comparison.md "Alignment".

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/model/definitions.h"
#include "tools/diff/model/record.h"

namespace convtrace::diff {

/// A module path in the baseline, or the beginning of one, and what it is in the candidate.
struct ScopeRename {
  std::string base, cand;
};

/// A module under both its names.
struct RenamedModule {
  std::string base, cand;
  float confidence = 1;
  bool operator==(const RenamedModule&) const = default;
};

/// A module of the candidate in the baseline's words.
struct ScopePair {
  format::StringId base;
  float confidence = 1;
};

class ScopeMap {
 public:
  /// @param names  texts of all records' ids; must outlive this. @param renames  by the user.
  ScopeMap(format::Definitions& names, std::vector<ScopeRename> renames)
      : names_(names), renames_(std::move(renames)) {}

  /// Looks at the modules of a step that both runs have. Where no module is new it costs a look
  /// per record.
  void learn(const StepRecords& base, const StepRecords& cand);

  /// Whether every module keeps its name.
  [[nodiscard]] bool is_identity() const { return pairs_.empty(); }
  /// @return of a module whose name means another one in the baseline: an id without a text.
  [[nodiscard]] ScopePair of(format::StringId cand) const;
  /// By the candidate's id.
  [[nodiscard]] const std::unordered_map<uint32_t, ScopePair>& renamed() const { return pairs_; }

 private:
  struct Module;

  /// @return modules without a partner, in the order of their first records.
  [[nodiscard]] std::vector<Module> modules_of(const StepRecords& step,
                                               const std::unordered_set<uint32_t>& settled) const;
  void rename(std::span<const Module> cand);
  void settle(format::StringId base, format::StringId cand, float confidence);

  format::Definitions& names_;
  std::vector<ScopeRename> renames_;
  std::vector<bool> base_seen_, cand_seen_;                   ///< by id
  std::unordered_set<uint32_t> base_settled_, cand_settled_;  ///< have a partner
  std::unordered_map<uint32_t, ScopePair> pairs_;             ///< whose names differ
  std::unordered_set<uint32_t> taken_;                        ///< baseline's side of pairs_
};

}  // namespace convtrace::diff
