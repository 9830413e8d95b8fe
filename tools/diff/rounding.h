#pragma once
/// @file rounding.h
/// How far rounding alone carries values apart, where that is further than a value's own type and
/// size say. Three things carry it:
///
/// - a sum in which much cancels: the gradient of a bias before a normalisation is the rounding of
///   what it adds up, so it is held against that and not against itself;
/// - an optimizer that divides by the size of a gradient: where that is about zero, rounding says
///   which way the parameter goes, and it ends up to two updates apart. Elements whose gradients
///   agree are not excused by it: where they move differently, the update is another one;
/// - a narrow type upstream: after a bf16 value that differs by rounding no f32 value made of it is
///   known better than bf16.
///
/// Place:    rank_diff.h asks in execution order; compare.h takes the answer as it takes noise.
/// Memory:   the samples of every parameter.
/// Threads:  not thread-safe.
/// Source:   measured pairs, docs/design.md "What rounding does".

#include <optional>
#include <unordered_map>
#include <vector>

#include "tools/diff/compare.h"

namespace convtrace::diff {

class Rounding {
 public:
  /// Gradients of the coming step are sums of other values.
  void begin_step(uint32_t step) {
    summands_.clear();
    move_ = 0;
    step_ = step;
  }
  /// Widens `band` by what is known so far.
  void widen(const ValueView& base, const ValueView& cand, std::optional<NoiseBand>& band) const;
  /// @param comparison  of these two.
  void learn(const ValueView& base, const ValueView& cand, const Comparison& comparison);

  /// Whether an optimizer has made more of rounding than a parameter's type explains: from then on
  /// nothing is equal any more, and single values part far.
  [[nodiscard]] bool enlarged() const { return enlarged_; }

 private:
  struct Parameter {
    std::vector<double> base, cand;  ///< samples as recorded last
    std::optional<uint32_t> step;    ///< when that was
    std::vector<bool> tainted;       ///< samples whose gradients were ever apart
    bool gradient_differs = false;   ///< in this step or an earlier one
    uint32_t updates = 0;            ///< since then
    double drift = 0;                ///< what the updates since then can have carried it apart
  };

  /// Whether elements with equal gradients moved otherwise.
  [[nodiscard]] bool updated_otherwise(const Parameter& parameter, const ValueView& base,
                                       const ValueView& cand) const;
  /// The largest that both runs made.
  static double update(const Parameter& parameter, const ValueView& base, const ValueView& cand);
  static void taint(Parameter& parameter, const ValueView& base, const ValueView& cand);

  /// @return Parameter::drift with the update that led to these two.
  [[nodiscard]] double drift(const Parameter& parameter, const ValueView& base,
                             const ValueView& cand) const;

  /// Of a module's grad_output.
  struct Summands {
    double norm = 0;  ///< l2
    uint64_t count = 0;
  };

  std::unordered_map<uint32_t, Summands> summands_;  ///< by scope
  std::unordered_map<uint64_t, Parameter> parameters_;
  uint32_t step_ = 0;
  double move_ = 0;  ///< the largest of the step's updates so far
  bool enlarged_ = false;
  format::DType coarsest_ = format::DType::kF64;  ///< of the values that differed by rounding
};

}  // namespace convtrace::diff
