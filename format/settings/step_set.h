#pragma once
/// @file step_set.h
/// Which steps (or ranks) are wanted: `0|5-8|100-120,every=50`, ranges inclusive, `5-` open, `all`.
///
/// Ranks use the same grammar with `,` between items (`0-3,7`): see parse_rank_set.

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/base/status.h"

namespace convtrace::settings {

class StepSet {
 public:
  /// Everything.
  StepSet() = default;

  [[nodiscard]] bool contains(uint32_t step) const;

  /// @return kInvalidArgument (detail: position of the first bad character).
  [[nodiscard]] static Result<StepSet> parse_steps(std::string_view text);
  [[nodiscard]] static Result<StepSet> parse_ranks(std::string_view text);

 private:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0xFFFFFFFF;
    uint32_t every = 1;  ///< first, first + every, ...
  };
  std::vector<Range> ranges_{Range{}};
};

}  // namespace convtrace::settings
