#pragma once
/// @file rank_diff.h
/// Compares the two traces of one rank, or two runs that were put together from all of their ranks,
/// step by step in lockstep.
///
/// Place:    diff.h runs one for each rank and joins the parts.
/// Memory:   the steps in memory (see step_stream.h), the classes of parameters, the noise
///           families.
/// Threads:  not thread-safe.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tools/diff/births/births.h"
#include "tools/diff/births/last_weights.h"
#include "tools/diff/births/written_weights.h"
#include "tools/diff/compare/noise.h"
#include "tools/diff/read/step_stream.h"
#include "tools/diff/shown/shown_causes.h"
#include "tools/diff/verdict/first_weights.h"
#include "tools/diff/verdict/one_sided.h"
#include "tools/diff/verdict/one_sided_root.h"
#include "tools/diff/verdict/rank_part.h"
#include "tools/diff/verdict/result.h"
#include "tools/diff/verdict/root.h"
#include "tools/trace/names/rules.h"

namespace convtrace::diff {

/// @return whether a record is evidence about other values alone, and no value to be judged: an
/// initial buffer, or a kept tensor of which only a hash is known.
[[nodiscard]] bool is_evidence(Role role, Class verdict);

/// Receives every compared or unmatched record, in execution order; the CSV report is one.
class RowSink {
 public:
  virtual ~RowSink() = default;
  /// @param record  has only one side filled in if it is unmatched: `base` if `in_base`.
  virtual void row(const RecordReport& record, bool in_base, bool in_cand) = 0;
};

/// Forwards to several sinks.
class RowSinks final : public RowSink {
 public:
  void add(RowSink& sink) { sinks_.push_back(&sink); }
  [[nodiscard]] bool empty() const { return sinks_.empty(); }
  void row(const RecordReport& record, bool in_base, bool in_cand) override {
    for (RowSink* sink : sinks_) sink->row(record, in_base, in_cand);
  }

 private:
  std::vector<RowSink*> sinks_;
};

class RankDiff {
 public:
  /// @param names, launches  of all streams. @param equal  the steps that the streams leave out.
  /// @param rows may be null. @param part  gets what is found; outlives this.
  RankDiff(format::Definitions& names, LaunchKeys& launches, const EqualSteps& equal,
           const DiffRules& rules, Exactness exactness, std::span<const BirthRow> table,
           RowSink* rows, RankPart& part)
      : reporter_(names, part.rank),
        names_(names),
        launches_(launches),
        equal_(equal),
        rows_(rows),
        scopes_(names, rules.renames),
        tolerances_(names, rules.tolerances),
        ignored_(names, rules.ignored),
        dimensions_(rules.dimensions),
        births_(names, exactness, table),
        part_(part) {}

  RankDiff(const RankDiff&) = delete;
  RankDiff& operator=(const RankDiff&) = delete;

  /// Reads both streams to their ends.
  /// @param after_step  called after each.
  void run(StepSource& base, StepSource& cand, std::span<const std::unique_ptr<StepStream>> noise,
           const std::function<void()>& after_step);

  /// Products of f32 are rounded to the 10 bits of TF32.
  void use_tf32() { births_.use_tf32(); }
  /// The settings of the two runs allow that only one of them records gradients.
  void excuse_lost_gradients() { all_gradients_ = false; }
  /// The runs are combined from their ranks: calls, ops and clipping of only one run belong to its
  /// layout.
  void excuse_layouts() { same_structure_ = false; }
  void use_stored(CompareStored stored) { births_.use_stored(std::move(stored)); }

 private:
  /// Counts the unread steps before `step`.
  void take_equal_before(uint32_t step);
  void learn_noise(const StepRecords& base, std::span<const std::unique_ptr<StepStream>> noise);
  void compare_step(const StepRecords& base, const StepRecords& cand, bool with_noise);
  void take_unpaired(const StepRecords& step, bool in_base);
  void count(const StepPair& pair);
  void find_first_bit_difference(const StepPair& pair);
  void judge_values(StepPair& pair, bool with_noise);
  void judge_values(StepPair& pair, bool with_noise, bool arranged);
  [[nodiscard]] Comparison judge_value(uint32_t match, const ValueView& base, const ValueView& cand,
                                       bool unwritten, bool with_noise);
  void add_allowed(const ValueView& base, const ValueView& cand, const NoiseBand* noise,
                   std::optional<double> by_hand, const Comparison& judged);
  void find_carried(const StepPair& pair);
  void find_hidden(const StepPair& pair);
  void list_other_forms(const StepPair& pair);
  void find_root(const StepPair& pair);
  void take_weights(const StepRecords& step, bool in_base);
  void find_offset(const StepPair& pair);
  [[nodiscard]] std::optional<RootReport> new_root(const StepPair& pair);
  void look_at_weights(const StepPair& pair, uint32_t match, RootReport& root) const;
  void write_rows(const StepPair& pair);
  void write_unmatched(const StepRecords& step, std::span<const uint32_t> indices, bool in_base);
  [[nodiscard]] uint64_t matched_before(const StepPair& pair, uint32_t match) const;

  PairReporter reporter_;
  format::Definitions& names_;
  LaunchKeys& launches_;
  const EqualSteps& equal_;
  size_t equal_taken_ = 0;
  RowSink* rows_;
  ScopeMap scopes_;
  Tolerances tolerances_;
  NoiseModel noise_;
  Tolerances ignored_;
  std::vector<DimensionRule> dimensions_;
  OneSidedValues one_sided_{reporter_, ignored_};
  Births births_;
  RankPart& part_;
  DiffResult& result_ = part_.result;
  bool all_gradients_ = true;
  bool same_structure_ = true;
  bool was_arranged_ = false;  ///< a step's data had another arrangement (arranged.h)
  uint64_t matched_in_earlier_steps_ = 0;
  LastWeights last_weights_;
  ShownCauses shown_;
  FirstWeights first_weights_;
  WrittenWeights written_{names_, last_weights_};
};

}  // namespace convtrace::diff
