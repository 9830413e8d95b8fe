#pragma once
/// @file findings.h
/// The findings of one run, with their texts.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/model/events.h"

namespace convtrace::diff {

struct FindingReport {
  uint32_t rank = 0;
  uint32_t step = 0;
  uint64_t t_ns = 0;
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::Level level = format::Level::kWarning;
  bool suppressed = false;
  format::Phase phase = format::Phase::kForward;
  std::string scope, op, kernel, slot, other, message;
  uint32_t call = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t storage = 0;
  uint64_t generation = 0;
  size_t story = 0;  ///< findings of one run with the same number belong to one bug
  std::vector<std::string> alloc_stack, launch_stack, free_stack;
};

/// The findings of one run, all ranks. `list` is cut at kMaxFindings; the counts are not.
struct Findings {
  std::vector<FindingReport> list;
  uint64_t count = 0;
  uint64_t errors = 0;  ///< unsuppressed, level error
};
inline constexpr size_t kMaxFindings = 4096;

}  // namespace convtrace::diff
