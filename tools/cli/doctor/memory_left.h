#pragma once
/// @file memory_left.h
/// How much memory the control groups of this process leave it: a container's, a Slurm job's.
///
/// Errors:   what cannot be read limits nothing.
/// Source:   cgroup v2 documentation of the kernel, "Memory Interface Files".

#include <cstdint>
#include <filesystem>
#include <optional>

namespace convtrace::tools::doctor {

/// @param cgroups     where the hierarchy is mounted: "/sys/fs/cgroup".
/// @param own_cgroup  which part of it is ours: "/proc/self/cgroup".
/// @return bytes, the least over all groups that this process is in; none without a limit.
[[nodiscard]] std::optional<uint64_t> memory_left(const std::filesystem::path& cgroups,
                                                  const std::filesystem::path& own_cgroup);

}  // namespace convtrace::tools::doctor
