#pragma once
/// @file align.h
/// Finds which record of one run belongs to which record of the other, inside one (rank, step).
///
/// Threads:  pure functions.
/// Source:   docs/design.md "The diff", alignment.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tools/diff/record.h"

namespace convtrace::diff {

/// How a match was made: by a key that occurs once, or by the how-manieth of equal keys it is.
enum class MatchedBy : uint8_t { kStableKey, kOccurrence };
[[nodiscard]] std::string_view to_string(MatchedBy value);

struct Match {
  uint32_t base = 0;  ///< index into the base step's values
  uint32_t cand = 0;
  MatchedBy how = MatchedBy::kStableKey;
};

struct Alignment {
  /// In execution order: where both runs agree about the order of two matches, so does this list;
  /// exchanging the runs gives the same list.
  std::vector<Match> matches;
  std::vector<uint32_t> base_only, cand_only;  ///< ascending
};

[[nodiscard]] Alignment align(std::span<const ValueRecord> base, std::span<const ValueRecord> cand);

/// @return how many launches have a partner: per key the smaller of both counts.
[[nodiscard]] uint64_t matched_launches(const StepRecords& base, const StepRecords& cand);

}  // namespace convtrace::diff
