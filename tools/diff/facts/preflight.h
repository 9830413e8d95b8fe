#pragma once
/// @file preflight.h
/// What differs between two runs before any value is looked at: most divergences are explained
/// here.

#include <optional>
#include <string>
#include <vector>

#include "format/model/meta.h"

namespace convtrace::diff {

struct PreflightEntry {
  std::string name;
  std::optional<std::string> base, cand;  ///< nullopt: that run has no such thing
  bool operator==(const PreflightEntry&) const = default;
};

/// How a process was started; what is not known is empty.
struct RunCommand {
  std::vector<std::string> words;  ///< the command line
  std::string executable;          ///< of Python
  std::string directory, python_path;
};

/// @return how the process was started; what the trace does not tell is empty.
[[nodiscard]] RunCommand command_of(const format::TraceMeta& meta);

/// @return facts with different values, in the order in which they matter: versions, switches that
/// change numerics, devices, the rest, convtrace's own settings. Where a trace is written and who
/// ran it are not facts about the training.
[[nodiscard]] std::vector<PreflightEntry> compare_meta(const format::TraceMeta& base,
                                                       const format::TraceMeta& cand);

/// Adds what is not among them.
void add_entry(std::vector<PreflightEntry>& entries, PreflightEntry entry);

}  // namespace convtrace::diff
