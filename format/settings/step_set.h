#pragma once
/// @file step_set.h
/// A set of steps or ranks: `0|5-8|100-120,every=50`, ranges inclusive, `5-` open, `all`.
///
/// Ranks use the same ranges, separated by `,` and without `every`: `0-3,7`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/base/status.h"

namespace convtrace::settings {

class StepSet {
 public:
  /// The set of all numbers.
  StepSet() = default;

  [[nodiscard]] bool contains(uint32_t step) const;
  /// @return whether the set is that of all numbers, spelled `all`.
  [[nodiscard]] bool is_all() const { return steps_text() == "all"; }
  /// @return the smallest number in the set.
  [[nodiscard]] uint32_t first() const;
  /// @return whether the set contains a number below `limit`.
  [[nodiscard]] bool any_below(uint32_t limit) const;

  /// @return kInvalidArgument (detail: position of the first bad character).
  [[nodiscard]] static Result<StepSet> parse_steps(std::string_view text);
  [[nodiscard]] static Result<StepSet> parse_ranks(std::string_view text);

  /// @return the set in the spelling that parse_steps (parse_ranks) takes.
  [[nodiscard]] std::string steps_text() const { return text('|'); }
  [[nodiscard]] std::string ranks_text() const { return text(','); }

 private:
  static constexpr uint32_t kOpen = 0xFFFFFFFF;
  struct Range {
    uint32_t first = 0;
    uint32_t last = kOpen;
    uint32_t every = 1;  ///< first, first + every, ...
  };
  enum class Kind : uint8_t { kSteps, kRanks };
  class Parser;

  [[nodiscard]] static Result<StepSet> parse(std::string_view text, Kind kind);
  [[nodiscard]] std::string text(char separator) const;

  std::vector<Range> ranges_ = std::vector<Range>(1);
};

}  // namespace convtrace::settings
