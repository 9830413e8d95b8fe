#include "tools/diff/align/align_rest.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/diff/model/sequence_align.h"

namespace convtrace::diff {
namespace {

using Records = std::span<const ValueRecord>;

/// Confidence of pairs by sequence: with equal values; if both runs have the same number left;
/// else.
constexpr float kSameValue = 0.95F, kSameNumber = 0.7F, kRegion = 0.4F;
/// Limit for all tables of one step: a step in which everything differs must not take minutes.
constexpr size_t kMaxStepCells = size_t{1} << 22;

constexpr float kFits = 1, kFitsSlot = 1, kFitsOperation = 2, kFitsValue = 4;

/// A score for two records being the same value, from kind, type and size.
float fit(const ValueRecord& a, const ValueRecord& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.stats.count != b.stats.count) return 0;
  const bool same_value = a.stats.hash == b.stats.hash;
  // What an operation takes is not what the module around it takes.
  const bool same_level = static_cast<bool>(a.key.op) == static_cast<bool>(b.key.op);
  if (!same_value && (!same_level || a.fused || b.fused)) return 0;
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

}  // namespace

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

}  // namespace convtrace::diff
