#include "tools/diff/align/align.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "tools/diff/align/align_rest.h"
#include "tools/diff/align/fused_calls.h"
#include "tools/diff/align/reorder.h"

namespace convtrace::diff {
namespace {

constexpr float kOccurrenceConfidence = 0.95F;

Match by_key(uint32_t base, uint32_t cand, const RecordKey& key) {
  if (key.occurrence == 0) return {base, cand};
  return {base, cand, MatchedBy::kOccurrence, kOccurrenceConfidence};
}

/// @param key_of  the baseline's key of a record of the candidate.
template <typename KeyOf>
Alignment align_by_key(std::span<const ValueRecord> base, uint32_t cand_count,
                       const KeyOf& key_of) {
  Alignment alignment;
  alignment.matches.reserve(std::min<size_t>(base.size(), cand_count));
  // Two runs of one program mostly agree record by record. Only the rest needs a table.
  uint32_t equal = 0;
  while (equal < base.size() && equal < cand_count && base[equal].key == key_of(equal)) {
    alignment.matches.push_back(by_key(equal, equal, base[equal].key));
    ++equal;
  }
  std::unordered_map<RecordKey, uint32_t, KeyHash> cand_of;
  cand_of.reserve(cand_count - equal);
  for (uint32_t i = equal; i < cand_count; ++i) cand_of.emplace(key_of(i), i);
  for (uint32_t i = equal; i < base.size(); ++i) {
    const auto found = cand_of.find(base[i].key);
    if (found == cand_of.end()) {
      alignment.base_only.push_back(i);
    } else {
      alignment.matches.push_back(by_key(i, found->second, base[i].key));
      cand_of.erase(found);
    }
  }
  for (const auto& [key, i] : cand_of) alignment.cand_only.push_back(i);
  std::ranges::sort(alignment.cand_only);
  return alignment;
}

void sort_by_execution(Alignment& alignment, std::span<const ValueRecord> base,
                       std::span<const ValueRecord> cand) {
  // Where the runs order records differently, any order will do that does not depend on which run
  // is the baseline.
  std::ranges::stable_sort(alignment.matches, {}, [&](const Match& m) {
    return std::tuple(uint64_t{m.base} + m.cand, base[m.base].stats.hash + cand[m.cand].stats.hash);
  });
}

/// Lowers the confidence of matches in modules with another name.
void add_doubt(Alignment& alignment, std::span<const ValueRecord> cand, const ScopeMap& scopes) {
  for (Match& match : alignment.matches) {
    const auto renamed = scopes.renamed().find(cand[match.cand].key.scope.value);
    if (renamed == scopes.renamed().end()) continue;
    match.how = std::max(match.how, MatchedBy::kRenamedModule);
    match.confidence *= renamed->second.confidence;
  }
}

}  // namespace

#define CONVTRACE_X(name, text) text,
std::string_view to_string(MatchedBy value) {
  constexpr std::string_view kTexts[] = {CONVTRACE_DIFF_MATCHED_BY(CONVTRACE_X)};
  return kTexts[static_cast<size_t>(value)];
}
#undef CONVTRACE_X

Alignment align(std::span<const ValueRecord> base, std::span<const ValueRecord> cand) {
  Alignment alignment = align_by_key(base, static_cast<uint32_t>(cand.size()),
                                     [&](uint32_t i) -> const RecordKey& { return cand[i].key; });
  part_unlike_fusions(alignment, base, cand);
  sort_by_execution(alignment, base, cand);
  return alignment;
}

Alignment align(std::span<const ValueRecord> base, std::span<const ValueRecord> cand,
                const ScopeMap& scopes) {
  const auto translated = [&](uint32_t i) {
    RecordKey key = cand[i].key;
    key.scope = scopes.of(key.scope).base;
    return key;
  };
  const auto as_it_is = [&](uint32_t i) -> const RecordKey& { return cand[i].key; };
  const auto count = static_cast<uint32_t>(cand.size());
  Alignment alignment = scopes.is_identity() ? align_by_key(base, count, as_it_is)
                                             : align_by_key(base, count, translated);
  part_unlike_fusions(alignment, base, cand);
  undo_reordering(alignment, base, cand);
  pair_losses(alignment, base, cand);
  align_rest(alignment, base, cand, scopes);
  if (!scopes.is_identity()) add_doubt(alignment, cand, scopes);
  sort_by_execution(alignment, base, cand);
  return alignment;
}

void drop_matches(Alignment& alignment, const std::vector<bool>& holds) {
  size_t kept = 0;
  for (size_t m = 0; m < alignment.matches.size(); ++m) {
    const Match& match = alignment.matches[m];
    if (holds[m]) {
      alignment.matches[kept++] = match;
    } else {
      alignment.base_only.push_back(match.base);
      alignment.cand_only.push_back(match.cand);
    }
  }
  alignment.matches.resize(kept);
  std::ranges::sort(alignment.base_only);
  std::ranges::sort(alignment.cand_only);
}

}  // namespace convtrace::diff
