#include "tools/trace/model/not_finite.h"

namespace convtrace::diff {
namespace {

using format::Phase;

bool may_be_mask(Role kind, Phase phase) {
  switch (kind) {
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradient:
    case Role::kUnclipped:
    case Role::kLoss: return false;
    case Role::kParameter:  // before the first step: a table may be one
      return phase == Phase::kForward;
    case Role::kInput:
    case Role::kOutput:
    case Role::kBuffer:
    case Role::kInitialBuffer:
    case Role::kWritten: return true;
    default:
      return phase != Phase::kLoss && phase != Phase::kBackward && phase != Phase::kOptimizer &&
             phase != Phase::kCommunication;
  }
}

}  // namespace

bool is_not_finite(const format::Stats& stats, Role kind, format::Phase phase) {
  return stats.nan != 0 || stats.pos_inf != 0 || (stats.neg_inf != 0 && !may_be_mask(kind, phase));
}

}  // namespace convtrace::diff
