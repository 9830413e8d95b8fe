#pragma once
/// @file read.h
/// Reads the parameters of a program out of its traces.
///
/// Threads:  one.
/// Errors:   one line, escaped.

#include <string>

#include "tools/weights/weights.h"

namespace convtrace::weights {

/// @param path  a trace, or a folder of traces, one a rank.
/// @return false with `error` set where nothing could be read.
[[nodiscard]] bool read_weights(const std::string& path, Weights& weights, std::string& error);

}  // namespace convtrace::weights
