#pragma once
/// @file loss_of.h
/// Maps the outcome of a request for device statistics to the reason for a lost value.

#include "format/model/event_enums.h"

namespace convtrace::engine {

/// @param why  not kSampled.
[[nodiscard]] constexpr format::LossReason loss_of(format::SampleOutcome why) noexcept {
  switch (why) {
    case format::SampleOutcome::kRingFull: return format::LossReason::kRingFull;
    case format::SampleOutcome::kGpuWorkOff: return format::LossReason::kGpuWorkOff;
    case format::SampleOutcome::kSampled:
    case format::SampleOutcome::kNotAsked:
    case format::SampleOutcome::kObservedOnly:
    case format::SampleOutcome::kCapturing:
    case format::SampleOutcome::kNotReady:
    case format::SampleOutcome::kNoOutput:
    case format::SampleOutcome::kLaunchFailed:
    case format::SampleOutcome::kWrongStream:
    case format::SampleOutcome::kCaptured:
    case format::SampleOutcome::kInGraph:
    case format::SampleOutcome::kMayWait: return format::LossReason::kStreamUnsafe;
  }
  return format::LossReason::kStreamUnsafe;
}

}  // namespace convtrace::engine
