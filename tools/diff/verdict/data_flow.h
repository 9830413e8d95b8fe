#pragma once
/// @file data_flow.h
/// Finds what the root was made of and what was made of it, for the graph in the report.
///
/// Two records are connected by the value's identity (lineage.h) or by what a slot means: a
/// parameter's gradient is made of its module's output gradient, an update of the gradient. Where
/// neither is known, as between modules and in the backward pass, the neighbour in the order of
/// execution stands in and is marked.
///
/// Threads:  pure function.

#include <cstdint>

#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

/// @param root  index into the matches of `pair`.
[[nodiscard]] DataFlow flow_of(const StepPair& pair, uint32_t root, const PairReporter& reporter);

}  // namespace convtrace::diff
