#pragma once
/// @file fatbin.h
/// The compiled kernels, as cuModuleLoadData takes them: machine code for every architecture from
/// 8.0 to 12.0 that has its own, and PTX for what comes later.
///
/// Source:   kernels/CMakeLists.txt builds it, fatbin.S embeds it.

namespace convtrace::stats {

extern "C" const unsigned char convtrace_stats_fatbin[];

}  // namespace convtrace::stats
