#pragma once
/// @file launcher_ranks.h
/// The variables in which launchers pass a process its rank and the number of ranks, in order of
/// preference.

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
