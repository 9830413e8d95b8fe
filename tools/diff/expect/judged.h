#pragma once
/// @file judged.h
/// Judges two runs by the contract of the change between them.
///
/// Threads:  not thread-safe.
/// Memory:   for each clause the first value that decides it, and the steps of the candidate.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/diff/expect/contract.h"
#include "tools/diff/verdict/rank_diff.h"
#include "tools/diff/verdict/result.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

enum class Kept : uint8_t { kKept, kCannotTell, kBroken };
[[nodiscard]] std::string_view to_string(Kept kept);

struct JudgedClause {
  const Clause* clause = nullptr;
  Kept kept = Kept::kKept;
  std::string text{};                   ///< why, in one line, escaped
  std::optional<RecordReport> place{};  ///< the value that decides it
};

struct JudgedContract {
  std::vector<JudgedClause> clauses;  ///< in the contract's order

  /// @return the worst of the clauses.
  [[nodiscard]] Kept kept() const;
  [[nodiscard]] size_t count(Kept kept) const;
};

/// Collects what each clause has to know of the compared values.
class ContractRows final : public RowSink {
 public:
  /// @param contract  must outlive this.
  explicit ContractRows(const Contract& contract);
  void row(const RecordReport& record, bool in_base, bool in_cand) override;

  /// @param result  of the same runs. @param base, cand  their META, for hashes of code.
  [[nodiscard]] JudgedContract judge(const DiffResult& result, const TraceSet& base,
                                     const TraceSet& cand) const;

 private:
  /// The values that one clause is about.
  struct Tally {
    uint64_t identical = 0, rounding = 0, unknown = 0, beyond = 0;
    uint64_t base_only = 0, cand_only = 0;
    std::optional<RecordReport> first_unequal{}, first_beyond{}, first_in_cand{}, first_one_sided{};
    std::set<uint32_t> steps{};  ///< in which the candidate has one
    uint32_t last_step = 0;

    [[nodiscard]] uint64_t compared() const { return identical + rounding + unknown + beyond; }
  };
  /// The time at which each step of a rank began.
  using Starts = std::map<std::pair<uint32_t, uint32_t>, uint64_t>;

  [[nodiscard]] JudgedClause unchanged(const Clause& clause, const Tally& tally,
                                       const DiffResult& result) const;
  [[nodiscard]] JudgedClause changed(const Clause& clause, const Tally& tally,
                                     const DiffResult& result) const;
  [[nodiscard]] JudgedClause runs(const Clause& clause, const Tally& tally,
                                  const TraceSet& cand) const;
  [[nodiscard]] JudgedClause never(const Clause& clause, const Tally& tally,
                                   const DiffResult& result, const TraceSet& cand) const;
  [[nodiscard]] JudgedClause slower(const Clause& clause) const;

  const Contract& contract_;
  std::vector<Tally> tallies_;  ///< one for each clause
  std::set<uint32_t> steps_;    ///< in which the candidate has values
  bool differs_ = false;        ///< any value, by a bit or by being in one run alone
  Starts base_starts_, cand_starts_;
};

}  // namespace convtrace::diff
