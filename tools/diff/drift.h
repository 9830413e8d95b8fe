#pragma once
/// @file drift.h
/// Whether a value differs by no more than what it was made of does. Rounding grows on its way: an
/// output is about as far off as its inputs and parameters are, in units of what each may round by,
/// and in a training step after the first all of them are off. So a value that is further apart
/// than its own rounding explains is to be blamed only where the difference jumps.
///
/// An input whose producer is known is as far off as that. Most inputs are known by a hash alone:
/// such a one can be made of whatever was put out inside the module at work and nobody took yet,
/// and of what that module was given. Gradients can be made of everything before them in the step.
///
/// Place:    rank_diff.h asks in execution order, after rounding.h.
/// Threads:  not thread-safe.
/// Source:   measured pairs, docs/design.md "What rounding does".

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "format/definitions.h"
#include "tools/diff/align.h"
#include "tools/diff/compare.h"
#include "tools/diff/lineage.h"

namespace convtrace::diff {

class Drift {
 public:
  /// @param names  texts of the records' ids; must outlive this.
  explicit Drift(const format::Definitions& names) : names_(names) {}

  /// All three must outlive the step.
  void begin_step(const StepRecords& base, const Alignment& alignment, const Lineage& lineage);
  /// Of the next match: takes back a divergence that what the value was made of explains.
  void judge(const ValueView& base, const ValueView& cand, Comparison& comparison);
  /// The next match is not to be judged.
  void skip() { z_.push_back(0); }
  /// A parameter: the coming steps' values are made of it.
  void take_parameter(const ValueView& base, const ValueView& cand, const Comparison& comparison);
  /// A step all of whose values agree bit by bit, parameters among them.
  void take_equal_step() { parameters_.clear(); }

 private:
  using Sizes = std::unordered_map<uint64_t, double>;  ///< by parameter_key()

  /// How far the parameters of a module are apart.
  struct Parameters {
    Sizes vectors;   ///< they are added to a value, or scale each of its elements
    Sizes matrices;  ///< in units of their size; as far as they ever were
  };

  /// A call of a module or op that is at work, and what it was given.
  struct Call {
    RecordKey key;         ///< by call_key()
    double known = 0;      ///< z of those inputs whose producer is known
    bool others = false;   ///< there are others
    bool is_over = false;  ///< it gave something out
  };

  /// What a place made of its inputs in earlier steps.
  struct Seen {
    double gain = 0;     ///< z for z
    double largest = 0;  ///< z
  };

  /// How many times further apart than by its own rounding a value can be.
  [[nodiscard]] double explained(const ValueView& base, const ValueView& cand,
                                 const Comparison& comparison);
  void learn(const ValueRecord& record, double z);
  [[nodiscard]] double of_rare_elements(const ValueView& base, const ValueView& cand,
                                        const Comparison& comparison) const;
  [[nodiscard]] double of_inputs(const ValueRecord& record) const;
  [[nodiscard]] double of_parameters(const ValueView& base, const ValueView& cand,
                                     const Comparison& comparison) const;
  /// Follows the step up to a match.
  void follow(uint32_t end);
  void follow_input(uint32_t match, const ValueRecord& record);
  void follow_output(uint32_t match, const ValueRecord& record);
  void put_by(uint32_t match);
  [[nodiscard]] bool is_inside(format::StringId scope, format::StringId outer) const;
  [[nodiscard]] const ValueRecord& record_of(uint32_t match) const {
    return base_->values[alignment_->matches[match].base];
  }

  const format::Definitions& names_;
  std::unordered_map<uint32_t, Parameters> parameters_;  ///< by scope
  std::unordered_map<RecordKey, Seen, KeyHash> seen_;    ///< by place, in any call
  // Of the step.
  const StepRecords* base_ = nullptr;
  const Alignment* alignment_ = nullptr;
  const Lineage* lineage_ = nullptr;
  std::vector<double> z_;  ///< by match, before anything is taken back
  double largest_ = 0;     ///< of those that something can be made of
  // Up to match followed_: looked at only where something diverges.
  uint32_t followed_ = 0;
  std::vector<Call> calls_;        ///< each inside of those before it
  std::vector<uint32_t> at_hand_;  ///< outputs that nobody took yet, the oldest first
  double others_at_hand_ = 0;      ///< z of those that are too many
};

}  // namespace convtrace::diff
