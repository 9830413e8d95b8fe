#pragma once
/// @file not_finite.h
/// Says which values that are not finite can be a fault: the one rule of check, origin and
/// `show --nan`.
///
/// A NaN and a positive infinity always count. Attention masks consist of negative infinities, so
/// these count only where no mask can be: in gradients, losses, updates of parameters, and in
/// tensors that collectives move after the forward pass.
///
/// Threads:  pure function.

#include "format/model/events.h"
#include "tools/trace/model/slot.h"

namespace convtrace::diff {

/// @pre the statistics are known, not the hash alone.
[[nodiscard]] bool is_not_finite(const format::Stats& stats, Role kind, format::Phase phase);

}  // namespace convtrace::diff
