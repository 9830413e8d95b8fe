#include "tools/diff/align/fused_calls.h"

#include <algorithm>
#include <unordered_set>

namespace convtrace::diff {
namespace {

using Records = std::span<const ValueRecord>;
using Calls = std::unordered_set<RecordKey, KeyHash>;

void add_fused(Calls& calls, const std::vector<uint32_t>& from, Records records) {
  for (const uint32_t i : from) {
    if (records[i].fused) calls.insert(call_key(records[i]));
  }
}

}  // namespace

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

}  // namespace convtrace::diff
