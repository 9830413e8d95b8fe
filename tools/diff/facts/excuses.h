#pragma once
/// @file excuses.h
/// The effect of a difference in versions, switches, packages or devices on numbers, and whether it
/// excuses that equal programs round differently. The excuses are a list, each row with its reason:
/// a fact that is not on it excuses nothing.
///
/// Place:    called for each difference that preflight.h finds.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "One value".

#include <string_view>

#include "tools/diff/facts/preflight.h"

namespace convtrace::diff {

enum class Excuse {
  kNone,      ///< computes nothing: it causes no difference of bits
  kMay,       ///< may choose what is computed: options, seeds, another machine
  kOnDevice,  ///< as kRounding, where a GPU computes
  kRounding,  ///< makes sums round differently: versions, threads, libraries, algorithms
};

struct Meaning {
  Excuse excuse = Excuse::kNone;
  std::string_view text = "";  ///< one sentence; "" if there is no general statement
};

[[nodiscard]] Meaning meaning_of(const PreflightEntry& difference);

}  // namespace convtrace::diff
