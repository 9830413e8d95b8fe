#pragma once
/// @file fact_root.h
/// A setting that differs as the root of a divergence. It is certain, while values with rounding
/// only hint at it or do not show it.
///
/// Place:    diff.cpp, after all ranks were compared.
/// Threads:  pure function.

#include <optional>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// @return the first setting of a module or an optimizer that differs, if some value differs too
/// and none diverges before the setting is used.
[[nodiscard]] std::optional<RootReport> setting_root(const DiffResult& result);

}  // namespace convtrace::diff
