#pragma once
/// @file launcher_ranks.h
/// By which variables launchers tell a process its rank and the number of ranks, in the order in
/// which they are asked.

namespace convtrace::settings {

struct LauncherRank {
  const char* rank;
  const char* world_size;
};

inline constexpr LauncherRank kLauncherRanks[] = {{"RANK", "WORLD_SIZE"},  // torchrun
                                                  {"SLURM_PROCID", "SLURM_NTASKS"},
                                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                  {"PMI_RANK", "PMI_SIZE"}};

}  // namespace convtrace::settings
