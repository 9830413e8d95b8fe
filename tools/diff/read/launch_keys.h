#pragma once
/// @file launch_keys.h
/// Assigns numbers to launch keys, shared by all traces of a diff, so that a step of thousands of
/// launches is a list of numbers.
///
/// Place:    step_stream.h stores launches by number; rank_diff.h counts the launches that two
///           steps share.
/// Threads:  one owner thread.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/diff/model/scope_map.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

class LaunchKeys {
 public:
  /// @return the key's number: 0, 1, 2, ... in order of first use.
  uint32_t number(const LaunchKey& key);

  /// @return the number of launches with a partner: for each key the smaller of both counts.
  /// @param scopes  of the candidate's keys.
  [[nodiscard]] uint64_t in_common(const StepRecords& base, const StepRecords& cand,
                                   const ScopeMap& scopes);

 private:
  uint64_t in_common(std::span<const uint32_t> base, std::span<const uint32_t> cand);

  std::unordered_map<LaunchKey, uint32_t, KeyHash> numbers_;
  std::vector<LaunchKey> keys_;   ///< by number
  std::vector<uint32_t> counts_;  ///< by number; all 0 between calls
};

}  // namespace convtrace::diff
