#pragma once
/// @file apart_value.h
/// A value that ranks hold in parts, that both runs have, and that could not be put together alike.

#include <cstdint>
#include <string>
#include <vector>

#include "format/model/event_enums.h"

namespace convtrace::diff {

struct ApartValue {
  format::Phase phase = format::Phase::kForward;
  std::string scope, op, slot;
  std::string why;  ///< the ranks' values of both runs, in words
  uint32_t first_step = 0;
  uint64_t values = 0;
};

/// All values that could not be put together.
struct ApartValues {
  static constexpr size_t kMost = 256;
  std::vector<ApartValue> list;  ///< at most kMost, in the order of their first
  uint64_t values = 0;           ///< count of all such values, listed or not
};

}  // namespace convtrace::diff
