#pragma once
/// @file like.h
/// `convtrace run --like BASE`: the settings of an earlier run, from its trace.
///
/// Errors:   if they cannot be known, a line on stderr, and false.

#include <string>

namespace convtrace::tools {

/// Puts the settings that decide what is recorded into this process's environment. Settings that
/// the environment or the file of CONVTRACE_CONFIG gives stay, and where they differ a line says
/// so. The steps are those that the run took, also where CONVTRACE_OVERHEAD chose them. Where the
/// trace, the log and libcupti are is not taken.
/// @return whether the settings are known.
[[nodiscard]] bool take_settings_of(const std::string& base);

}  // namespace convtrace::tools
