#include "tools/diff/align.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace convtrace::diff {
namespace {

MatchedBy how_matched(const RecordKey& key) {
  return key.occurrence == 0 ? MatchedBy::kStableKey : MatchedBy::kOccurrence;
}

}  // namespace

std::string_view to_string(MatchedBy value) {
  return value == MatchedBy::kStableKey ? "stable key" : "stable key and occurrence";
}

Alignment align(std::span<const ValueRecord> base, std::span<const ValueRecord> cand) {
  Alignment alignment;
  alignment.matches.reserve(std::min(base.size(), cand.size()));
  // Two runs of one program mostly agree record by record; only the rest needs a table.
  uint32_t equal = 0;
  while (equal < base.size() && equal < cand.size() && base[equal].key == cand[equal].key) {
    alignment.matches.push_back({equal, equal, how_matched(base[equal].key)});
    ++equal;
  }
  std::unordered_map<RecordKey, uint32_t, KeyHash> by_key;
  by_key.reserve(cand.size() - equal);
  for (uint32_t i = equal; i < cand.size(); ++i) by_key.emplace(cand[i].key, i);
  for (uint32_t i = equal; i < base.size(); ++i) {
    const auto found = by_key.find(base[i].key);
    if (found == by_key.end()) {
      alignment.base_only.push_back(i);
    } else {
      alignment.matches.push_back({i, found->second, how_matched(base[i].key)});
      by_key.erase(found);
    }
  }
  for (const auto& [key, i] : by_key) alignment.cand_only.push_back(i);
  std::ranges::sort(alignment.cand_only);
  // Where the runs disagree about an order any will do that does not depend on which run is which.
  std::ranges::stable_sort(alignment.matches, {}, [&](const Match& m) {
    return std::tuple(uint64_t{m.base} + m.cand, base[m.base].stats.hash + cand[m.cand].stats.hash);
  });
  return alignment;
}

uint64_t matched_launches(const StepRecords& base, const StepRecords& cand) {
  uint64_t matched = 0;
  for (const auto& [key, count] : base.launches) {
    const auto found = cand.launches.find(key);
    if (found != cand.launches.end()) matched += std::min(count, found->second);
  }
  return matched;
}

}  // namespace convtrace::diff
