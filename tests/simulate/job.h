#pragma once
/// @file job.h
/// Makes up a whole job: all ranks, step by step, and their traces.
///
/// Memory:   of the values of about kMostRecords records, and about 2 MB a rank for its writer.
/// Errors:   a text for the user.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulate/faults.h"
#include "tests/simulate/options.h"

namespace convtrace::simulate {

struct JobResult {
  Layout layout;
  Model model;
  std::vector<Fault> faults;
  bool hangs = false;  ///< some rank waits for ever: the traces end there, unclosed
  uint32_t steps = 0;  ///< that were begun
  uint64_t events = 0, bytes = 0, calls = 0;
};

/// Writes the traces and job.json, which says what was planted, to options.output, a new or empty
/// folder.
/// @return false, and why not.
[[nodiscard]] bool make_job(const Options& options, JobResult& result, std::string& error);

}  // namespace convtrace::simulate
