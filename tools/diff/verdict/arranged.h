#pragma once
/// @file arranged.h
/// Recognizes a step whose data are the same in another arrangement: rows or micro-batches in
/// another order, batches first or time first, padding that is cut, packed sequences.
///
/// Why it is no fault: the step trains the same if its losses and the gradients of all parameters
/// agree as closely as equal data make them. The data, and what modules made of them on the way,
/// then differ without a consequence.
///
/// Place:    rank_diff.h, around the judgement of a step's values (births.h).
/// Threads:  pure functions.

#include "tools/diff/verdict/step_pair.h"
#include "tools/trace/names/rules.h"

namespace convtrace::diff {

/// @return whether the runs gave a root module other data in a step of training, or a value has
/// another shape. Only then is it worth judging the step as one of another arrangement.
[[nodiscard]] bool may_be_arranged(const StepPair& pair);

/// @return whether a step that was judged so has losses and gradients of parameters, all of them
/// agree and show all data that differ, and the data have the same numbers, if they are as many. A step with values of 16 bits is none: their rounding
/// hides a change of few rows. Values that --ignore or --tol names are no evidence.
/// @pre the gradients were judged as if the data were equal. @param by_hand  of --tol.
[[nodiscard]] bool is_arranged(const StepPair& pair, Tolerances& by_hand,
                               const PairReporter& reporter);

}  // namespace convtrace::diff
