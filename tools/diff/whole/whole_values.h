#pragma once
/// @file whole_values.h
/// Combines the ranks' values of one step: copies of a tensor, pieces of one, terms of a sum, or
/// losses of parts of a batch.
///
/// The kind follows from the value's size in the other run: values are combined in the way that
/// gives both runs a value of the same size. Ranks with equal hashes may hold copies. If there is
/// no such way, the value is listed (ApartValue) and not compared.
///
/// Place:    whole_runs.h, for each step that both runs have.
/// Memory:   borrows the steps of all ranks until clear(); the memory of moves.h.
/// Threads:  not thread-safe.
/// Source:   docs/comparison.md "Other layouts".

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "tools/diff/whole/apart_value.h"
#include "tools/diff/whole/held.h"
#include "tools/diff/whole/moves.h"
#include "tools/diff/whole/whole_record.h"
#include "tools/trace/names/rules.h"

namespace convtrace::diff {

class WholeValues {
 public:
  /// @param names  texts of all records' ids; must outlive this.
  WholeValues(format::Definitions& names, const DiffRules& rules);

  /// Puts the values of a step together. A run whose step is empty gives no values.
  void put_together(HeldStep& base, HeldStep& cand, StepRecords& base_whole,
                    StepRecords& cand_whole);

  /// The values that could not be put together so far.
  [[nodiscard]] const ApartValues& apart() const { return apart_; }
  /// @return the number of values that were taken for sums of the ranks' values without a rule.
  [[nodiscard]] uint64_t summed() const { return summed_; }

 private:
  /// A way to put a value together. kInFull: ranks hold unlike tensors of the whole's size: copies
  /// of which the one is compared that is furthest from the other run's value, or terms of a sum,
  /// if that is nearer.
  enum class How : uint8_t { kCopies, kPieces, kReduced, kInFull };
  struct Form {
    How how = How::kCopies;
    uint64_t copies = 1;  ///< copies of each piece
    uint64_t count = 0;   ///< elements of the whole
    int cost = 0;         ///< the least likely costs most
  };
  struct Chosen {
    HeldValue* value = nullptr;
    const HeldValue* partner = nullptr;
    Form form;
    How partner_form = How::kCopies;
    double factor = 1;  ///< multiplies the ranks' values
  };
  /// The values of both runs under one key, in the baseline's names; null: a run has none.
  struct Pair {
    RecordKey key;
    std::array<HeldValue*, 2> of{};
  };
  struct Side {
    std::vector<Chosen> chosen;
    std::optional<size_t> data_parts;  ///< parts of the batch, by the modules' data
    size_t loss_parts = 1;             ///< the same by the losses
    bool sums_losses = false;
    Moves moves;

    [[nodiscard]] size_t parts() const { return sums_losses ? 1 : data_parts.value_or(loss_parts); }
    void begin_step();
  };

  [[nodiscard]] Reduction reduction_of(const ValueRecord& record) const;
  [[nodiscard]] std::vector<Form> forms_of(const HeldValue& value) const;
  [[nodiscard]] static std::optional<std::pair<Form, Form>> common(const std::vector<Form>& base,
                                                                   const std::vector<Form>& cand,
                                                                   bool are_terms);
  [[nodiscard]] bool are_shared_by_parts(const HeldValue& base, const HeldValue& cand) const;
  [[nodiscard]] RecordKey in_base(RecordKey key);
  void pair(HeldStep& base, HeldStep& cand);
  void join_fused();
  void choose();
  void take(Side& side, HeldValue& value, const HeldValue* partner, const Form& form,
            How partner_form) const;
  void leave(const HeldValue& base, const HeldValue& cand);
  [[nodiscard]] static bool is_of_parts(const Chosen& chosen);
  [[nodiscard]] WholeRecord made(const Chosen& chosen) const;
  void put(Side& side, const Chosen& chosen, StepRecords& whole);
  void write(const HeldStep& step, Side& side, size_t least_parts, StepRecords& whole);
  static void find_odd_ranks(const Side& side, const StepRecords& other, StepRecords& whole);

  format::Definitions& names_;
  std::vector<ScopeRename> renames_;
  std::vector<ReductionRule> reductions_;
  FusedNames fused_;
  std::unordered_map<uint32_t, format::StringId> in_base_;  ///< by the candidate's scope
  std::vector<Pair> pairs_;
  std::unordered_map<RecordKey, size_t, KeyHash> pair_of_;
  std::deque<HeldValue> joined_;
  Side base_, cand_;
  ApartValues apart_;
  uint64_t summed_ = 0;
};

}  // namespace convtrace::diff
