#pragma once
/// @file conventions.h
/// What the schemas' columns mean beyond their types; shared by encoder and decoder.

#include <cstdint>

namespace convtrace::format::wire {

/// Value of StatsColumns.rank for a tensor of unknown shape.
inline constexpr uint8_t kRankUnknown = 255;

}  // namespace convtrace::format::wire
