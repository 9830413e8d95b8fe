#pragma once
/// @file updates.h
/// Compares the optimizer's updates of the parameters in a step of both runs.
///
/// An update is small beside its parameter, and an adaptive optimizer turns gradients that differ
/// by rounding into updates of another sign. So the updates of all parameters are judged together.
/// Sketches are linear: the sketch of an update is the parameter's sketch minus that of the step
/// before. Of parameters in pieces the two runs' sketches cannot be subtracted: the norms of the
/// updates are compared, and how much the norms of the parameters have changed.
///
/// Place:    births.h.
/// Threads:  not thread-safe.
/// Memory:   two sketches for each parameter.
/// Source:   docs/lab/calibration.md.

#include <array>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/diff/births/table.h"

namespace convtrace::diff {

/// Relative error of a norm that is made of the norms of pieces: docs/recording.md "Statistics".
inline constexpr double kNormError = 1e-6;

/// A faulty update of a step, with its distance from the explained one.
struct UpdateFault {
  uint32_t match = 0;  ///< as given to take()
  Comparison comparison;
};

class Updates {
 public:
  explicit Updates(std::span<const BirthRow> table = kBirthRows) : table_(table) {}

  void begin_step();
  /// Records a parameter before the first step.
  void begin_with(const ValueView& base, const ValueView& cand);
  /// Records a gradient as the optimizer gets it.
  void take_gradient(const ValueRecord& base, const ValueRecord& cand);
  /// Records a parameter after a step. @param match  comes back from judge().
  /// @param gradient   relative difference of its gradient, if that is known.
  /// @param unit       roundoff of its type.
  /// @param all_equal  all values except updates had equal bits so far.
  void take(uint32_t match, const ValueView& base, const ValueView& cand,
            std::optional<double> gradient, double unit, bool all_equal);
  /// @return the faulty updates of this step: those that one run, or one of its ranks, has not
  /// made; else, if all updates together exceed a limit, those that also exceed it alone, or all if
  /// none does.
  [[nodiscard]] std::vector<UpdateFault> judge();
  /// Passes over a step in which nothing differs and which is not read.
  void skip_step() { follows_ = false; }
  /// @return the squared norm of all updates of this step that are known, of the baseline and of
  /// the candidate; 0 if none is, as behind a step that was passed over.
  [[nodiscard]] const std::array<double, 2>& moved() const { return moved_; }

 private:
  /// The difference of one parameter's update, or of several together.
  struct Update {
    uint32_t match = 0;
    double base = 0, cand = 0;      ///< squared norms
    double apart_weight = 0;        ///< scalar product of the difference and the parameter
    double apart_weight_norms = 0;  ///< product of their norms
    double spread = 0;  ///< product of squared norms, which bounds the error of a sketched one
    double gain = 0;    ///< difference of the update, relative to the explained one

    void add(const Update& other);
  };
  /// A difference, and the limit that it is held against.
  struct Measured {
    double difference = 0, limit = 0;
  };
  using Measure = Measured (Updates::*)(const Update&) const;

  void hold_back(uint32_t match);
  void find_held_back(uint32_t match, const ValueView& base, const ValueView& cand, double unit,
                      bool all_equal);
  void take_in_pieces(uint32_t match, const ValueView& base, const ValueView& cand,
                      std::optional<double> gradient, double unit);
  [[nodiscard]] Measured in_norm(const Update& update) const;
  [[nodiscard]] Measured along_weights(const Update& update) const;
  [[nodiscard]] Measured by_gradient(const Update& update) const;
  [[nodiscard]] std::vector<UpdateFault> beyond(Measure measure, const Measured& together) const;

  using Buckets = std::array<double, format::Sketch::kBuckets>;
  struct Parameter {
    Buckets base, cand;
    bool had_unlike_gradient = false;
  };

  /// The step before, for a parameter in pieces.
  struct Norms {
    double apart = 0;  ///< norm in the baseline - norm in the candidate
    bool had_unlike_gradient = false;
  };

  std::span<const BirthRow> table_;
  std::unordered_map<uint64_t, Parameter> before_;
  std::unordered_map<uint64_t, std::array<uint64_t, 2>> hashes_before_;  ///< the baseline's first
  std::unordered_map<uint64_t, Norms> norms_before_;
  std::vector<Update> updates_;         ///< the updates of this step
  std::vector<UpdateFault> held_back_;  ///< updates that one run, or one rank of it, has not made
  double base_gradients_ = 0, cand_gradients_ = 0;  ///< squared norms of all
  std::array<double, 2> moved_{};
  bool follows_ = true;  ///< the step before this one was read
};

}  // namespace convtrace::diff
