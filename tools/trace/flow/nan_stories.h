#pragma once
/// @file nan_stories.h
/// Follows NaN and infinities through the steps of a run, and separates those that have a
/// consequence from those that have none.
///
/// A step is worthless if a loss, a gradient, a parameter, a buffer or the output of a root module
/// is not finite. Its birth is the first such value inside no call whose outputs are finite. Values
/// that reach nothing else (rows that are masked out and replaced later), values that stay in the
/// data (missing values) and infinite gradients that a GradScaler skips are reported as such, each
/// kind once.
///
/// Place:    `convtrace check` (values/births.cpp) and `convtrace show --nan`.
/// Threads:  not thread-safe.
/// Source:   docs/checks.md "nan".

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/trace/flow/made_by.h"
#include "tools/trace/flow/passed.h"

namespace convtrace::diff {

struct NanStory {
  enum class Kind : uint8_t {
    kEnds,      ///< it goes no further
    kScaled,    ///< a gradient under a loss scale, or a scaled loss that overflows
    kMissing,   ///< in the data, and stays there
    kFromData,  ///< in the data, and has a consequence
    kBorn,      ///< it has a consequence
  };
  Kind kind = Kind::kBorn;
  size_t value = 0;  ///< where it begins: index in the step
  /// For kFromData and kBorn: the first value that makes the step worthless.
  std::optional<size_t> reached{};
  bool may_mask = false;  ///< only infinities reach an output: they may mask a minimum
  /// An earlier value of the step that is not finite and does not leave the call around it: which
  /// module's.
  std::optional<size_t> ended{};
  std::string ended_in{};
};

class NanStories {
 public:
  explicit NanStories(const format::Definitions& names) : names_(names) {}

  /// @return the stories of this step; none after a birth. @param step in execution order
  std::vector<NanStory> see(std::span<const Passed> step);

  [[nodiscard]] bool is_bad(const Passed& value) const;
  /// @return who made the gradient `value`, by which gradients are finite; see made_by.h.
  [[nodiscard]] std::optional<MadeBy> maker_of(std::span<const Passed> step, size_t value) const;

 private:
  /// @return whether a parameter as it was before the first call is memory that its module writes
  /// in that call: it is finite when it is recorded next, or is not recorded again in the step, and
  /// the module's outputs are finite.
  [[nodiscard]] bool is_unwritten(std::span<const Passed> step, size_t value) const;

  bool found_ = false, noted_ = false, hinted_ = false, missing_ = false;
  double loss_scale_ = 0;  ///< the last; 0: there is none
  const format::Definitions& names_;
};

}  // namespace convtrace::diff
