#pragma once
/// @file blow_up.h
/// blow-up: a loss that rises from step to step until it is not finite, or until the run ends.
///
/// Why it is a fault: no training that works loses by orders of magnitude more with each step.
/// Level: a warning where the loss becomes NaN or infinite, or where an update of the rise was as
/// large as the weights that it changed; else a hint, since a loss may grow with what it judges (a
/// critic's with the returns of its policy).
/// Silent: a rise that comes back (a spike), one of fewer than four steps that stays finite.
///
/// Threads:  pure function.

#include <vector>

#include "tools/check/model/finding.h"
#include "tools/check/model/story.h"

namespace convtrace::check {

/// Adds the findings. A NaN or infinity in which a rise ends, and of which nothing else is known,
/// says that it follows the rise.
/// @param findings  those of the run, to which new ones are appended
void add_blow_ups(const Story& story, std::vector<Finding>& findings);

}  // namespace convtrace::check
