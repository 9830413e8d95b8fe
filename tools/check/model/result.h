#pragma once
/// @file result.h
/// The result of `convtrace check` for a run, independent of the output format.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/check/model/finding.h"
#include "tools/check/model/story.h"

namespace convtrace::check {

struct Looked {
  std::string_view id, what;
  uint64_t times = 0;  ///< 0: the run has nothing that this check could judge
};

struct CheckResult {
  std::vector<std::string> paths;
  std::vector<Story> stories;     ///< one for each trace that trains, by rank
  std::vector<Finding> findings;  ///< worst first
  std::vector<Looked> looked;     ///< one for each check that ran, in the order of the catalogue
  uint64_t ranks = 0, values = 0, steps = 0, steps_trained = 0;  ///< steps of the rank with most
  std::vector<std::string> notes;                                ///< parts not judged, and why
  std::vector<std::string> incomplete;                           ///< lines about traces, escaped

  [[nodiscard]] uint64_t count(Severity severity) const {
    uint64_t count = 0;
    for (const Finding& finding : findings) count += finding.severity == severity ? 1 : 0;
    return count;
  }
};

}  // namespace convtrace::check
