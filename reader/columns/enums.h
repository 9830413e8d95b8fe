#pragma once
/// @file enums.h
/// Enumerators as they are stored: a newer writer may use ones that are not known here.

#include <cstdint>

#include "format/model/events.h"

namespace convtrace::reader {

template <typename Enum>
inline constexpr uint64_t kEnumCount = 0;
#define CONVTRACE_ONE(name, value, text) +1
#define CONVTRACE_COUNT(Enum, LIST) \
  template <>                       \
  inline constexpr uint64_t kEnumCount<format::Enum> = 0 LIST(CONVTRACE_ONE);
CONVTRACE_COUNT(Phase, CONVTRACE_PHASES)
CONVTRACE_COUNT(Capture, CONVTRACE_CAPTURES)
CONVTRACE_COUNT(Extent, CONVTRACE_EXTENTS)
CONVTRACE_COUNT(MemorySource, CONVTRACE_MEMORY_SOURCES)
CONVTRACE_COUNT(Confidence, CONVTRACE_CONFIDENCES)
CONVTRACE_COUNT(Padding, CONVTRACE_PADDINGS)
CONVTRACE_COUNT(NotSampled, CONVTRACE_NOT_SAMPLED)
CONVTRACE_COUNT(FindingKind, CONVTRACE_FINDING_KINDS)
CONVTRACE_COUNT(Level, CONVTRACE_LEVELS)
CONVTRACE_COUNT(LossReason, CONVTRACE_LOSS_REASONS)
CONVTRACE_COUNT(SyncKind, CONVTRACE_SYNC_KINDS)
CONVTRACE_COUNT(OpMoment, CONVTRACE_OP_MOMENTS)
#undef CONVTRACE_COUNT
#undef CONVTRACE_ONE
template <>
inline constexpr uint64_t kEnumCount<format::DType> = format::kDTypeCount;
template <>
inline constexpr uint64_t kEnumCount<format::Device::Type> = 3;
template <>
inline constexpr uint64_t kEnumCount<format::Copy::Kind> = 3;

/// Remembers whether all stored enumerators of an event are known here.
struct Enums {
  bool known = true;

  template <typename Enum>
  void set(Enum& to, uint64_t stored) {
    static_assert(kEnumCount<Enum> > 0);
    if (stored < kEnumCount<Enum>) {
      to = static_cast<Enum>(stored);
    } else {
      known = false;
    }
  }
};

}  // namespace convtrace::reader
