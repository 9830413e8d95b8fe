#pragma once
/// @file preflight.h
/// Compares the metadata of two runs before any value is read: most divergences are explained
/// there.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "format/model/meta.h"

namespace convtrace::diff {

struct PreflightEntry {
  std::string name;
  std::optional<std::string> base, cand;  ///< nullopt: that run does not have it
  bool operator==(const PreflightEntry&) const = default;
};

/// The entry of environment variables whose hashes differ: "NAME=#HASH NAME=#HASH".
inline constexpr const char* kEnvironment = "environment";

/// The start of a process; unknown parts are empty.
struct RunCommand {
  std::vector<std::string> words;  ///< the command line
  std::string executable;          ///< the path of Python
  std::string directory, python_path;
  std::map<std::string, std::string> files{};  ///< hashes of the program's own files, by name
  /// Ranks that torchrun started on one machine; 0: they were started otherwise. `words` start
  /// them.
  uint32_t torchrun_ranks = 0;
  bool compiled = false;  ///< torch.compile compiled a part of the program
};

/// @return how the trace's process was started; unknown parts are empty.
[[nodiscard]] RunCommand command_of(const format::TraceMeta& meta);

/// @return facts whose values differ, the most important first: versions, switches that change
/// numerics, devices, other facts, convtrace's own settings. Facts that do not concern training
/// (where the trace is written, who ran it) are left out.
[[nodiscard]] std::vector<PreflightEntry> compare_meta(const format::TraceMeta& base,
                                                       const format::TraceMeta& cand);

/// Adds an entry that is not among them yet.
void add_entry(std::vector<PreflightEntry>& entries, PreflightEntry entry);

/// @return whether a tensor of one run is divided among ranks as no tensor of the other is: another
/// mesh, or other placements. Traces that cannot be read have none. @param base, @param cand  paths.
[[nodiscard]] bool placed_unlike(const std::string& base, const std::string& cand);

}  // namespace convtrace::diff
