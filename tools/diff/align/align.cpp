#include "tools/diff/align/align.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "tools/diff/align/reorder.h"
#include "tools/diff/model/sequence_align.h"

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

/// Lowers the confidence of matches in modules with another name.
void add_doubt(Alignment& alignment, std::span<const ValueRecord> cand, const ScopeMap& scopes) {
  for (Match& match : alignment.matches) {
    const auto renamed = scopes.renamed().find(cand[match.cand].key.scope.value);
    if (renamed == scopes.renamed().end()) continue;
    match.how = std::max(match.how, MatchedBy::kRenamedModule);
    match.confidence *= renamed->second.confidence;
  }
}

using Records = std::span<const ValueRecord>;
using Calls = std::unordered_set<RecordKey, KeyHash>;

void add_fused(Calls& calls, const std::vector<uint32_t>& from, Records records) {
  for (const uint32_t i : from) {
    if (records[i].fused) calls.insert(call_key(records[i]));
  }
}

/// Parts pairs of fused kernels that have one name and are not made of the same operations: a
/// compiler names a kernel by what it fused, and numbers its operands. Where two runs fused
/// differently, one name and one number may be different values. So the matches of a call are taken
/// apart if its operands are not as many, or not of the same types and sizes, in both runs.
void part_unlike_fusions(Alignment& alignment, Records base, Records cand) {
  Calls in_base, in_cand;
  add_fused(in_base, alignment.base_only, base);
  add_fused(in_cand, alignment.cand_only, cand);
  for (const Match& match : alignment.matches) {
    const ValueRecord &a = base[match.base], &b = cand[match.cand];
    if (a.fused && (a.dtype != b.dtype || a.bytes != b.bytes)) in_base.insert(call_key(a));
  }
  if (in_base.empty() && in_cand.empty()) return;
  std::vector<bool> holds;
  holds.reserve(alignment.matches.size());
  for (const Match& match : alignment.matches) {
    const ValueRecord &a = base[match.base], &b = cand[match.cand];
    holds.push_back(!a.fused || (!in_base.contains(call_key(a)) && !in_cand.contains(call_key(b))));
  }
  drop_matches(alignment, holds);
}

/// Confidence of pairs by sequence: with equal values; if both runs have the same number left;
/// else.
constexpr float kSameValue = 0.95F, kSameNumber = 0.7F, kRegion = 0.4F;
/// Limit for all tables of one step: a step in which everything differs must not take minutes.
constexpr size_t kMaxStepCells = size_t{1} << 22;

constexpr float kFits = 1, kFitsSlot = 1, kFitsOperation = 2, kFitsValue = 4;

/// A score for two records being the same value, from kind, type and size.
float fit(const ValueRecord& a, const ValueRecord& b) {
  const bool same_kind = a.kind == b.kind || (is_other(a.kind) && is_other(b.kind)) ||
                         (is_parameter_gradient(a.kind) && is_parameter_gradient(b.kind));
  if (!same_kind || a.dtype != b.dtype || a.stats.count != b.stats.count) return 0;
  const bool same_value = a.stats.hash == b.stats.hash;
  // Values of an op and of the module around it correspond only if their bits are equal.
  const bool same_level = static_cast<bool>(a.key.op) == static_cast<bool>(b.key.op);
  if (!same_value && (!same_level || a.fused || b.fused)) return 0;
  if (a.key.op && b.key.op && a.key.op != b.key.op && !(a.fused && b.fused)) return 0;
  const bool same_op = a.key.op == b.key.op && a.key.family == b.key.family;
  return kFits + (a.key.slot == b.key.slot ? kFitsSlot : 0) + (same_op ? kFitsOperation : 0) +
         (same_value ? kFitsValue : 0);
}

/// The records of one module call that have no partner.
struct Rest {
  std::vector<uint32_t> base, cand;
};
using Call = std::tuple<uint32_t, format::Phase, uint32_t>;  // scope, phase, call

Match matched(uint32_t b, uint32_t c, const Rest& rest, Records base, Records cand) {
  const bool same_number = rest.base.size() == rest.cand.size();
  const bool same_value = base[b].stats.hash == cand[c].stats.hash;
  return {b, c, same_number ? MatchedBy::kSequence : MatchedBy::kRegionEnd,
          same_value    ? kSameValue
          : same_number ? kSameNumber
                        : kRegion};
}

void remove(std::vector<uint32_t>& from, std::vector<uint32_t>& taken) {
  std::ranges::sort(taken);
  std::erase_if(from, [&](uint32_t i) { return std::ranges::binary_search(taken, i); });
}

/// For runs that launch different kernels: pairs, in sequence, the records of one call of one
/// module that have no partner by stable key.
void align_rest(Alignment& alignment, Records base, Records cand, const ScopeMap& scopes) {
  if (alignment.base_only.empty() || alignment.cand_only.empty()) return;
  std::map<Call, Rest> calls;
  for (const uint32_t i : alignment.base_only) {
    const RecordKey& key = base[i].key;
    calls[{key.scope.value, key.phase, key.call}].base.push_back(i);
  }
  for (const uint32_t i : alignment.cand_only) {
    const RecordKey& key = cand[i].key;
    calls[{scopes.of(key.scope).base.value, key.phase, key.call}].cand.push_back(i);
  }
  size_t cells = kMaxStepCells;
  std::vector<uint32_t> base_taken, cand_taken;
  for (const auto& entry : calls) {
    const Rest& rest = entry.second;
    if (rest.base.empty() || rest.cand.empty()) continue;
    const auto value = [](Records of) { return [of](uint32_t i) { return of[i].stats.hash; }; };
    const bool exchange =
        std::ranges::lexicographical_compare(rest.cand, rest.base, {}, value(cand), value(base));
    const auto pairs = align_sequences(
        rest.base.size(), rest.cand.size(), exchange,
        [&](size_t a, size_t b) { return fit(base[rest.base[a]], cand[rest.cand[b]]); }, cells);
    cells -= std::min(cells, rest.base.size() * rest.cand.size());
    for (const auto& [a, b] : pairs) {
      const uint32_t i = rest.base[a], j = rest.cand[b];
      alignment.matches.push_back(matched(i, j, rest, base, cand));
      base_taken.push_back(i);
      cand_taken.push_back(j);
    }
  }
  remove(alignment.base_only, base_taken);
  remove(alignment.cand_only, cand_taken);
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
  align_rest(alignment, base, cand, scopes);
  if (!scopes.is_identity()) add_doubt(alignment, cand, scopes);
  sort_by_execution(alignment, base, cand);
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
