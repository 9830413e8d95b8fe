#pragma once
/// @file data_flow.h
/// Finds the sources and the consumers of the root, for the graph in the report.
///
/// Two records are connected by the value's identity (lineage.h) or by what a slot means: a
/// parameter's gradient is made of its module's output gradient, an update of the gradient. Where
/// neither is known, as between modules, the neighbour in the order of execution stands in and is
/// marked. The gradient of an output is made by the backward of what took the output (made_by.h).
///
/// Threads:  pure function.

#include <cstdint>
#include <optional>

#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

/// @param root  index into the matches of `pair`.
/// @param made  the result of maker_of_root().
[[nodiscard]] DataFlow flow_of(const StepPair& pair, uint32_t root,
                               const std::optional<MadeBy>& made, const PairReporter& reporter);

/// @return whose backward made the root, if it is a gradient that its record only received.
[[nodiscard]] std::optional<MadeBy> maker_of_root(const StepPair& pair, uint32_t root,
                                                  const format::Definitions& names);

}  // namespace convtrace::diff
