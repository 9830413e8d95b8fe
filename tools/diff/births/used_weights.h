#pragma once
/// @file used_weights.h
/// What is known of the parameters that a module's output was computed with.
///
/// Place:    written_weights.h finds it, for the root.

#include <string>

#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

struct UsedWeights {
  Shown bits = Shown::kNotCompared;
  std::string agreed;  ///< kNotCompared: when they were last recorded, if they agree there
};

}  // namespace convtrace::diff
