#pragma once
/// @file nan_steps.h
/// Reads a trace step by step for `show --nan`, up to the first NaN or infinity that has a
/// consequence; those without one it notes (tools/trace/flow/nan_stories.h).
///
/// Memory:   the values of three steps (open_steps.h).
/// Threads:  one.

#include <optional>
#include <vector>

#include "tools/cli/read/nan_search.h"
#include "tools/trace/flow/nan_stories.h"
#include "tools/trace/read/open_steps.h"

namespace convtrace::tools {

/// A NaN or infinity, and its consequence.
struct NanFound {
  uint64_t seq = 0;
  diff::NanStory::Kind kind = diff::NanStory::Kind::kBorn;
  std::optional<Seen> reached{};          ///< the first value that makes the step worthless
  std::optional<diff::MadeBy> made_by{};  ///< for a gradient: the call whose backward made it
  /// An earlier bad value without consequences.
  std::optional<Seen> harmless{};
};

class NanSteps {
 public:
  explicit NanSteps(const format::Definitions& names) : names_(names), stories_(names) {}

  /// @return whether the result is certain, so that no more events are needed.
  bool add(const format::TensorStats& event);
  /// @return the result, after the last add(); nullopt if all values are finite.
  [[nodiscard]] std::optional<NanFound> find();

 private:
  struct Step {
    std::vector<diff::Passed> passed;
    std::vector<Seen> seen;
  };

  void judge_first();

  const format::Definitions& names_;
  diff::NanStories stories_;
  diff::OpenSteps<Step> open_;
  std::optional<NanFound> found_;     ///< the first one with a consequence
  std::optional<NanFound> harmless_;  ///< the first one without a consequence
  std::optional<Seen> harmless_value_;
};

}  // namespace convtrace::tools
