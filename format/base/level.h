#pragma once
/// @file level.h
/// Severity of a log line or a finding.

#include "format/base/named_enum.h"

namespace convtrace::format {

/// Values are stored: append only.
#define CONVTRACE_LEVELS(X) \
  X(kError, 0, "error")     \
  X(kWarning, 1, "warning") \
  X(kInfo, 2, "info")       \
  X(kDebug, 3, "debug")

CONVTRACE_NAMED_ENUM(Level, CONVTRACE_LEVELS)

}  // namespace convtrace::format
