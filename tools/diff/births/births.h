#pragma once
/// @file births.h
/// Decides whether a difference of two values is a fault or rounding, by where it was born.
///
/// A value is made of its sources (sources.h). A difference that is no larger than the gain of a
/// layer (kGain) times the difference of the sources was passed on; a larger one was born in this
/// value. A birth is rounding while it stays near the unit roundoff of the coarsest type involved.
/// docs/lab/calibration.md lists the measurements for each limit, and the faults that no limit
/// finds.
///
/// Place:    rank_diff.h, one step after another, match by match in execution order.
/// Threads:  not thread-safe.

#include <array>
#include <functional>
#include <optional>
#include <span>

#include "tools/diff/births/sources.h"
#include "tools/diff/births/table.h"
#include "tools/diff/births/updates.h"
#include "tools/diff/compare/elements.h"
#include "tools/diff/compare/noise.h"

namespace convtrace::diff {

/// The choice of whether rounding may make the two runs differ.
enum class Exactness : uint8_t {
  kExact,   ///< no: both runs do the same and repeat to the bit, so any difference is a fault
  kInexact  ///< yes
};

/// Compares the bytes of two values, where both traces hold them (snapshot_pairs.h).
using CompareStored =
    std::function<std::optional<ElementReport>(const ValueRecord& base, const ValueRecord& cand)>;

class Births {
 public:
  Births(format::Definitions& names, Exactness exactness, std::span<const BirthRow> table)
      : exactness_(exactness), table_(table), sources_(names), updates_(table) {}

  /// @param matches   of the step; must outlive its judgement.
  /// @param arranged  the step's data may be arranged in another way (arranged.h): values that are
  ///                  made of them and do not agree have another form, and are no source.
  void begin_step(const Lineage& lineage, std::span<const Match> matches, bool arranged) {
    matches_ = matches;
    arranged_ = arranged;
    sources_.begin_step(lineage, matches.size());
    updates_.begin_step();
  }
  /// Values of the step that one run alone has. Call it for the baseline first.
  void take_alone(const StepRecords& step, std::span<const uint32_t> indices) {
    sources_.take_alone(step, indices);
  }

  /// Judges the match, if compare() left it open.
  /// @param noise    null: there are no repetitions.
  /// @param allowed  the tolerance of the user, in place of all limits.
  void judge(uint32_t match, const ValueView& base, const ValueView& cand, const NoiseBand* noise,
             std::optional<double> allowed, Comparison& comparison);

  /// Judges the updates of all parameters together: a single one cannot be told from rounding. Call
  /// it after the last match of the step.
  /// @return the updates that are a fault; none if they are rounding.
  [[nodiscard]] std::vector<UpdateFault> judge_updates();

  /// @return Updates::moved
  [[nodiscard]] const std::array<double, 2>& moved() const { return updates_.moved(); }

  /// @return whether rounding may make the runs differ, and nothing else has so far.
  [[nodiscard]] bool is_open() const { return exactness_ == Exactness::kInexact && !has_birth_; }

  /// @return the largest difference of a float value whose sources are equal.
  [[nodiscard]] double own_rounding(const ValueRecord& record) const;

  void take_equal_step() {
    sources_.take_equal_step();
    updates_.skip_step();
  }
  /// Further values that both traces hold are compared element by element.
  void use_stored(CompareStored stored) { stored_ = std::move(stored); }
  /// Further products of f32 are rounded to the 10 bits of TF32.
  void use_tf32() { tf32_ = true; }

 private:
  using Limits = std::array<double, 4>;  ///< by Field, up to kElement
  /// The largest unit roundoff of a value and its sources.
  struct Roundoff {
    double unit = 0;  ///< of types that are computed in
    double cast = 0;  ///< of types that are only cast to

    [[nodiscard]] double of(Against type) const;
  };

  [[nodiscard]] Apart measure_pair(const ValueView& base, const ValueView& cand) const;
  [[nodiscard]] double unit_of(const ValueRecord& record) const;
  [[nodiscard]] uint16_t kind_of(const ValueRecord& record) const;
  /// @param of_sources  their largest unit roundoff; 0: none.
  [[nodiscard]] Roundoff roundoff_of(double of_sources,
                                     std::initializer_list<const ValueRecord*> values) const;
  [[nodiscard]] double born(const Roundoff& roundoff) const;
  [[nodiscard]] double cancelled(uint16_t kind, const ValueView& base, const Apart& apart,
                                 const Difference& source) const;
  /// @param noise  null: there are no repetitions.
  [[nodiscard]] Limits limits_of(const ValueView& base, const ValueView& cand, const Apart& apart,
                                 const Difference& source, const NoiseBand* noise) const;
  void weigh(const Apart& apart, const Limits& limits, const Difference& source,
             Comparison& comparison) const;
  [[nodiscard]] Class class_of(const Difference& source) const;
  void judge_exactly(const ValueView& base, const ValueView& cand, const Apart& apart,
                     const Difference& source, Comparison& comparison) const;
  void judge_discrete(const Difference& source, Comparison& comparison) const;
  void take(uint32_t match, const ValueView& base, const ValueView& cand, const Apart& apart,
            const Difference& source, const Comparison& comparison);
  void decide(const ValueView& base, const ValueView& cand, const Apart& apart,
              const Difference& source, const NoiseBand* noise, Comparison& comparison);

  Exactness exactness_;
  std::span<const BirthRow> table_;
  bool tf32_ = false, arranged_ = false;
  std::span<const Match> matches_;
  bool has_birth_ = false;  ///< a fault was found: later differences are no measure of rounding
  bool differs_ = false;    ///< a value that is no update had other bits
  CompareStored stored_;    ///< may be empty
  Sources sources_;
  Updates updates_;
};

}  // namespace convtrace::diff
