#pragma once
/// @file judged.h
/// Judges two runs by the contract of the change between them.
///
/// Threads:  not thread-safe.
/// Memory:   for each clause the first value that decides it, the steps in which it has values, and
///           an entry for each module and step of which one run alone has values.

#include <compare>
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

  /// @param result  of the same runs. @param base, cand  their traces: META, and if a clause asks
  /// for times their steps.
  [[nodiscard]] JudgedContract judge(const DiffResult& result, const TraceSet& base,
                                     const TraceSet& cand) const;

 private:
  struct At {
    uint32_t rank = 0, step = 0;
    auto operator<=>(const At&) const = default;
  };
  /// Values of a module in a step that one run alone has.
  struct Alone {
    uint64_t base = 0, cand = 0;
    bool only_parameters = true;
    std::optional<RecordReport> first{};
  };
  /// The values that one clause is about.
  struct Tally {
    uint64_t identical = 0, rounding = 0, unknown = 0, beyond = 0;  ///< in both runs
    std::map<std::pair<At, std::string>, Alone> alone{};            ///< by step and module
    std::optional<RecordReport> first_unequal{}, first_beyond{};
    uint32_t last_step = 0;
    uint64_t ran = 0;  ///< in the candidate, without parameters that merely exist
    std::optional<RecordReport> first_ran{};
    std::set<At> ran_in{};

    [[nodiscard]] uint64_t compared() const { return identical + rounding + unknown + beyond; }
  };
  struct Judging {
    const Clause& clause;
    const Tally& tally;
    const DiffResult& result;
    const TraceSet& base;
    const TraceSet& cand;
  };

  /// The values of one run alone, in steps that both have. `vanished`: of modules that the other
  /// run has, too.
  [[nodiscard]] Alone alone_of(const Tally& tally, uint64_t& vanished) const;
  /// @return why not all steps that a clause is about were looked at; "" if they were. @param both
  /// in both runs, else in the candidate.
  [[nodiscard]] std::string gap(const Judging& of, bool both) const;
  [[nodiscard]] JudgedClause unchanged(const Judging& of) const;
  [[nodiscard]] JudgedClause changed(const Judging& of) const;
  [[nodiscard]] JudgedClause runs(const Judging& of) const;
  [[nodiscard]] JudgedClause never(const Judging& of) const;
  [[nodiscard]] JudgedClause different(const Judging& of) const;

  const Contract& contract_;
  std::vector<Tally> tallies_;  ///< one for each clause
  std::set<At> base_at_, cand_at_;
  std::set<std::string> base_modules_, cand_modules_;
  bool differs_ = false;  ///< a value of both runs, by a bit
};

}  // namespace convtrace::diff
