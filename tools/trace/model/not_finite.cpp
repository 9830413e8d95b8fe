#include "tools/trace/model/not_finite.h"

namespace convtrace::diff {
namespace {

using format::Phase;

bool may_be_mask(SlotKind kind, Phase phase) {
  switch (kind) {
    case SlotKind::kGradOutput:
    case SlotKind::kGradInput:
    case SlotKind::kGrad:
    case SlotKind::kLoss:
      return false;
    case SlotKind::kParam:  // before the first step: a table may be one
      return phase == Phase::kForward;
    case SlotKind::kSent:
    case SlotKind::kReceived:
    case SlotKind::kNeeded:
    case SlotKind::kOther:
      return phase != Phase::kLoss && phase != Phase::kBackward && phase != Phase::kOptimizer &&
             phase != Phase::kCommunication;
    case SlotKind::kInput:
    case SlotKind::kOutput:
    case SlotKind::kBuffer:
    case SlotKind::kInitialBuffer:
    case SlotKind::kWritten:
      return true;
  }
  return true;
}

}  // namespace

bool is_not_finite(const format::Stats& stats, SlotKind kind, format::Phase phase) {
  return stats.nan != 0 || stats.pos_inf != 0 || (stats.neg_inf != 0 && !may_be_mask(kind, phase));
}

}  // namespace convtrace::diff
