#pragma once
/// @file excuses.h
/// What a difference of versions, switches, packages or devices does to numbers, and whether it
/// excuses that equal programs round differently. What excuses is a list, each row with its reason:
/// a fact that is not on it excuses nothing.
///
/// Place:    called for each difference that preflight.h finds.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "One value".

#include <string_view>

#include "tools/diff/facts/preflight.h"

namespace convtrace::diff {

enum class Excuse {
  kNone,      ///< computes nothing: a difference of bits is not of it
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
