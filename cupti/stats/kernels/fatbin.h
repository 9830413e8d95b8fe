#pragma once
/// @file fatbin.h
/// The compiled kernels, as cuModuleLoadData takes them: machine code for the architectures kCubins,
/// and PTX for what comes later.
///
/// Source:   kernels/CMakeLists.txt builds it, fatbin.S embeds it.

namespace convtrace::stats {

extern "C" const unsigned char convtrace_stats_fatbin[];
inline constexpr int kCubins[] = {CONVTRACE_CUBINS};  ///< ten times the major number, and the minor

}  // namespace convtrace::stats
