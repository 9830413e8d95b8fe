#pragma once
/// @file nan_steps.h
/// Reads a trace step by step for `show --nan`, up to the first NaN or infinity that has a
/// consequence; those without one it notes (tools/trace/flow/nan_stories.h).
///
/// Memory:   the values of three steps: those of several threads and of devices come late.
/// Threads:  one.

#include <map>
#include <optional>
#include <vector>

#include "tools/cli/read/nan_search.h"
#include "tools/trace/flow/nan_stories.h"

namespace convtrace::tools {

/// A NaN or infinity and what becomes of it.
struct NanFound {
  uint64_t seq = 0;
  diff::NanStory::Kind kind = diff::NanStory::Kind::kBorn;
  std::optional<Seen> reached{};          ///< the first value that makes the step worthless
  std::optional<diff::MadeBy> made_by{};  ///< of a gradient: whose backward made it
  /// An earlier one that goes no further.
  std::optional<Seen> harmless{};
};

class NanSteps {
 public:
  explicit NanSteps(const format::Definitions& names) : names_(names), stories_(names) {}

  /// @return whether enough is known: nothing need be added.
  bool add(const format::TensorStats& event);
  /// @return what was found, once all is added; nullopt: all values are finite.
  [[nodiscard]] std::optional<NanFound> find();

 private:
  struct Step {
    std::vector<diff::Passed> passed;
    std::vector<Seen> seen;
  };

  void judge_first();

  const format::Definitions& names_;
  diff::NanStories stories_;
  std::map<uint32_t, Step> open_;
  std::optional<NanFound> found_;     ///< with a consequence
  std::optional<NanFound> harmless_;  ///< the first without
  std::optional<Seen> harmless_value_;
};

}  // namespace convtrace::tools
