#pragma once
/// @file loss_class.h
/// What a trace lacks by the reason of a loss.

#include "format/model/event_enums.h"

namespace convtrace::format {

enum class LossClass : uint8_t {
  kRecords,  ///< records of any kind that should be in the trace
  kValues,   ///< values that should be in the trace
  kUnread,   ///< values that cannot be read, which may hold for any run
  kDetail,   ///< less of a record than was asked for
};

[[nodiscard]] constexpr LossClass class_of(LossReason reason) noexcept {
  switch (reason) {
    case LossReason::kQueueFull:
    case LossReason::kRecordTooLarge:
    case LossReason::kWriteFailed:
    case LossReason::kDiskBudget:
    case LossReason::kExitDeadline:
    case LossReason::kDamage:
    case LossReason::kObserverFailed: return LossClass::kRecords;
    case LossReason::kRingFull:
    case LossReason::kContextEnded:
    case LossReason::kGpuWorkOff: return LossClass::kValues;
    case LossReason::kTensorKind:
    case LossReason::kStreamUnsafe:
    case LossReason::kValueLeftOut:
    case LossReason::kGraphUnseen:
    case LossReason::kCollectiveMissed: return LossClass::kUnread;
    case LossReason::kValueNotStored:
    case LossReason::kGraphMemory: return LossClass::kDetail;
  }
  return LossClass::kRecords;  // of a newer version
}

/// @return whether a trace is incomplete by losses of this class.
[[nodiscard]] constexpr bool is_gap(LossClass kind) noexcept { return kind <= LossClass::kValues; }

}  // namespace convtrace::format
