#pragma once
/// @file fact_root.h
/// A setting that differs as the place where two runs part: it says for sure what values beside
/// rounding only suggest, or do not show at all.
///
/// Place:    diff.cpp, when all ranks are compared.
/// Threads:  pure function.

#include <optional>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// @return the first setting of a module or an optimizer that differs, if some value does too and
/// none diverges before the setting is used.
[[nodiscard]] std::optional<RootReport> setting_root(const DiffResult& result);

}  // namespace convtrace::diff
