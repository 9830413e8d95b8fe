#pragma once
/// @file sources.h
/// Tracks the sources of each value of a step, and how far the two runs' sources differ. The
/// sources of a module's output are the inputs of the call, the outputs of its child modules, and
/// its parameters. Those of a buffer are the same, and the buffer as the call before left it.
///
/// Place:    births.h, match by match in execution order.
/// Threads:  not thread-safe.
/// Memory:   a record for each module, one for each parameter.
/// Source:   docs/comparison.md "Fault or rounding".

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/model/definitions.h"
#include "tools/diff/align/lineage.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

/// The difference of the two runs' values, over a set of values.
struct Difference {
  double rms = 0;            ///< the largest relative difference; infinite where no number says it
  double unit = 0;           ///< unit roundoff of the coarsest type
  bool equal = true;         ///< every bit is
  bool known = true;         ///< false: some values differ by an amount that was not recorded
  bool other_shape = false;  ///< some values have another shape in the other run
  /// Rows and elements of the value with the most elements. A loss averages over the rows.
  uint64_t rows = 1, count = 0;
  double size = 0;  ///< root mean square of its elements

  void add(const Difference& other);
};

/// Largest gain of a layer: the difference of an output by that of its sources. Measured: 4.3.
inline constexpr double kGain = 8;

class Sources {
 public:
  /// @param names  texts of the records' ids; parents of scopes are added.
  explicit Sources(format::Definitions& names) : names_(&names) {}

  void begin_step(const Lineage& lineage, size_t matches);
  /// Takes values that only one run has, for the norms of its output gradients and for the types
  /// that gradients are made of. Call it for the
  /// baseline first. @param indices  in the step's values
  void take_alone(const StepRecords& step, std::span<const uint32_t> indices);

  /// @return the difference of the sources of match number `match`.
  [[nodiscard]] Difference of(uint32_t match, const ValueView& base, const ValueView& cand) const;

  /// @return whether an earlier record of the step describes the same value.
  [[nodiscard]] bool is_described(uint32_t match) const {
    return lineage_->seen_from[match] != kNoMatch;
  }

  /// Records the difference of a value that has been judged: it may be a source of later ones.
  void take(uint32_t match, const ValueRecord& base, const ValueRecord& cand,
            const Difference& difference);

  /// Records that a value's difference is unknown: values made of it may have any earlier source.
  void take_unknown(uint32_t match) { differences_[match] = all_; }

  /// Records a parameter's value, which holds until the next call for it.
  /// @param apart  the difference of the two runs' values.
  /// @param rows   first dimension of a matrix.
  void take_parameter(const ValueRecord& record, const Apart& apart, uint64_t rows);
  /// @return whether the parameter has a gradient in this step, and nothing that went into it has
  /// differed by a bit so far.
  [[nodiscard]] bool is_clean(const ValueRecord& parameter) const;
  /// Marks a parameter as not clean: its gradient differs, or its history is unknown.
  void soil(const ValueRecord& parameter) { soiled_.insert(parameter_key(parameter)); }
  /// @return the relative difference of a buffer as the call before left it. of() of a buffer
  /// leaves it out, since it is of the buffer's own size.
  [[nodiscard]] double of_buffer_before(const ValueRecord& buffer) const;
  /// @return the relative difference of a parameter's gradient in this step, if both runs have it.
  [[nodiscard]] std::optional<double> of_gradient(const ValueRecord& parameter) const;
  /// @return the difference of the values whose signs decide which elements of an activation's
  /// gradient are passed on: all outputs of the forward pass so far. After the last outermost
  /// module only the loss follows, which is made of outputs of outermost modules.
  [[nodiscard]] const Difference& signs_of(const ValueRecord& gradient) const {
    return gradient.key.scope.value == last_outermost_ ? outermost_ : forward_;
  }
  /// @return whether a value is the gradient of a parameter, or of a parametrized weight: a sum
  /// over all rows, whose terms may cancel.
  [[nodiscard]] bool is_summed_gradient(const ValueRecord& record) const;
  /// @return the norm of the terms of a parameter's gradient: the output gradients of its module,
  /// times the inputs' rows for a matrix. Unreliable if is_between_calls().
  [[nodiscard]] double summed_norm(const ValueView& gradient) const;

  /// @return whether a gradient belongs to a parameter whose module calls others, so that its use
  /// between these calls has no record. False in parametrizations, whose calls are products.
  [[nodiscard]] bool is_between_calls(const ValueRecord& gradient) const;

  /// Takes a step all of whose values agree bit by bit, parameters included.
  void take_equal_step() {
    parameters_.clear();
    outputs_.clear();
    gradients_before_ = {};
  }

 private:
  /// One call of a module, as far as it has gone.
  struct Module {
    Difference made_of;
    uint32_t call = 0;
    format::Phase phase = format::Phase::kForward;
    bool over = false;  ///< it has given its outputs
  };
  struct Parameter {
    double relative = 0;  ///< relative difference of a matrix
    double row_norm = 0;  ///< root mean square of the norms of a matrix's rows
    double columns = 0;
    double absolute = 0;  ///< root mean square of the differences of a vector's elements
  };

  /// All gradients of parameters in a step. Where nothing that they are made of was compared
  /// (align/passes.h), their difference in the step before is what rounding has grown to.
  struct Gradients {
    double squares = 0, apart = 0;  ///< squared norms
    bool equal = true;

    void add(const Difference& one);
    [[nodiscard]] Difference total() const;
  };

  [[nodiscard]] bool is_parametrized(const ValueRecord& record) const;
  [[nodiscard]] uint32_t parent_of(uint32_t scope) const;
  [[nodiscard]] uint32_t called(uint32_t scope) const;
  [[nodiscard]] Difference of_kept(const ValueRecord& base, const ValueRecord& cand) const;
  [[nodiscard]] Difference around(const ValueRecord& record, double size) const;
  [[nodiscard]] Difference parameters_of(uint32_t scope, double size) const;
  [[nodiscard]] Difference of_module(const ValueRecord& record, double size) const;
  void pass_through(uint32_t scope, double output, Difference& difference) const;
  Module& open(const ValueRecord& record);
  void take_input(const ValueRecord& record, const Difference& difference);
  void take_output(const ValueRecord& record, const Difference& difference);

  format::Definitions* names_;
  const Lineage* lineage_ = nullptr;
  std::vector<Difference> differences_;  ///< by match
  /// Outputs of this step and the previous one, by the baseline's hash: a program may keep an
  /// output and pass it to a module as data, such as a recurrent state.
  struct Output {
    uint64_t cand_hash;
    Difference difference;
  };
  std::unordered_map<uint64_t, Output> outputs_, outputs_before_;
  std::unordered_map<uint32_t, Module> modules_;
  std::unordered_map<RecordKey, Difference, KeyHash> ops_;
  std::unordered_map<uint32_t, std::unordered_map<uint64_t, Parameter>> parameters_;  ///< by scope
  std::unordered_set<uint64_t> soiled_;
  std::unordered_set<uint32_t> callers_;  ///< scopes of modules that called others
  /// The last records, by scope.
  std::unordered_map<uint32_t, std::unordered_map<uint64_t, Difference>> buffers_;
  std::unordered_map<uint64_t, double> gradients_;
  Gradients gradients_now_, gradients_before_;
  double unit_alone_ = 0;  ///< unit roundoff of the coarsest output that one run alone has
  std::unordered_map<uint32_t, double> output_gradients_;  ///< by scope: sum of squared norms
  Difference forward_;  ///< `rows` and `size` are those of the last output: a loss is made of it
  Difference backward_, all_;
  Difference outermost_;         ///< difference of the outputs of outermost modules
  uint32_t last_outermost_ = 0;  ///< the last outermost module with a non-scalar output
  mutable std::unordered_map<uint32_t, uint32_t> parents_;
};

}  // namespace convtrace::diff
