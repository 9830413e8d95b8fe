#pragma once
/// @file determinism.h
/// Explains how a difference of versions, switches or devices affects numerical results.
///
/// Place:    called for each difference that preflight.h finds.
/// Threads:  pure function.

#include <string_view>

namespace convtrace::diff {

/// @param fact  as in a trace: "switch.cudnn_benchmark", "version.torch".
/// @return one sentence; "" if there is no general statement.
[[nodiscard]] std::string_view meaning_of(std::string_view fact);

/// Whether such a difference makes sums round differently: versions, threads, libraries and
/// algorithms do; seeds, and settings of what is recorded, do not.
[[nodiscard]] bool explains_rounding(std::string_view fact);

}  // namespace convtrace::diff
