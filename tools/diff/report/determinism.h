#pragma once
/// @file determinism.h
/// What a difference between two runs' versions, switches and devices does to their numbers.
///
/// Place:    preflight.h asks for each difference that it finds.
/// Threads:  pure function.

#include <string_view>

namespace convtrace::diff {

/// @param fact  as in a trace: "switch.cudnn_benchmark", "version.torch".
/// @return one sentence, or "" where nothing general can be said.
[[nodiscard]] std::string_view meaning_of(std::string_view fact);

/// Whether such a difference makes sums round otherwise: versions, threads, libraries, algorithms;
/// not seeds, and not what was recorded.
[[nodiscard]] bool explains_rounding(std::string_view fact);

}  // namespace convtrace::diff
