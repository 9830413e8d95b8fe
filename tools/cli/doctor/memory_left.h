#pragma once
/// @file memory_left.h
/// The memory that the control groups of this process leave: those of a container or a Slurm job.
///
/// Errors:   a limit that cannot be read counts as no limit.
/// Source:   cgroup v2 documentation of the kernel, "Memory Interface Files".

#include <cstdint>
#include <filesystem>
#include <optional>

namespace convtrace::tools::doctor {

/// @param cgroups     mount point of the hierarchy: "/sys/fs/cgroup".
/// @param own_cgroup  file with this process's groups: "/proc/self/cgroup".
/// @return bytes, the minimum over all groups of this process; nullopt without a limit.
[[nodiscard]] std::optional<uint64_t> memory_left(const std::filesystem::path& cgroups,
                                                  const std::filesystem::path& own_cgroup);

}  // namespace convtrace::tools::doctor
