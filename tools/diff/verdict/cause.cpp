#include "tools/diff/verdict/cause.h"

#include <algorithm>
#include <tuple>

namespace convtrace::diff {
namespace {

bool overlaps(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  if (a_bytes == 0 || b_bytes == 0) return false;
  return a < b ? b - a < a_bytes : a - b < b_bytes;
}

/// Addresses can be compared within a step only: later the memory belongs to others.
bool is_about_memory_of(const FindingReport& finding, const RecordReport& root,
                        const SideReport& side) {
  if (finding.storage != 0 && finding.storage == side.value.storage) return true;
  return finding.step == root.step &&
         overlaps(finding.address, finding.bytes, side.address, side.bytes);
}

bool same_place(const FindingReport& a, const FindingReport& b) {
  return std::tie(a.kind, a.rank, a.step, a.phase, a.scope, a.call, a.op, a.slot) ==
         std::tie(b.kind, b.rank, b.step, b.phase, b.scope, b.call, b.op, b.slot);
}

bool has_counterpart(const FindingReport& finding, const Findings& others) {
  return std::ranges::any_of(
      others.list, [&](const FindingReport& other) { return same_place(finding, other); });
}

/// A larger weight means a better explanation.
using Weight = std::tuple<bool, bool, bool, bool, uint32_t, uint64_t>;

}  // namespace

std::optional<Cause> find_cause(const RootReport& root, const Findings& base,
                                const Findings& cand) {
  const RecordReport& record = root.record;
  std::optional<Cause> best;
  Weight best_weight;
  const auto consider = [&](bool in_cand) {
    const Findings& own = in_cand ? cand : base;
    const SideReport& side = in_cand ? record.cand : record.base;
    for (size_t i = 0; i < own.list.size(); ++i) {
      const FindingReport& finding = own.list[i];
      if (finding.level != format::Level::kError || finding.suppressed) continue;
      if (finding.rank != record.rank) continue;
      const bool same_memory = is_about_memory_of(finding, record, side);
      const bool before =
          finding.step < record.step || (finding.step == record.step && finding.t_ns <= side.t_ns);
      if (!before && !(same_memory && finding.step == record.step)) continue;
      // The reader of a stale value is a victim of what happened to its memory.
      const Weight weight{same_memory,
                          !has_counterpart(finding, in_cand ? base : cand),
                          finding.kind != format::FindingKind::kStaleRead,
                          finding.scope == record.scope,
                          finding.step,
                          finding.t_ns};
      if (best && weight <= best_weight) continue;
      best = Cause{in_cand, finding, i, same_memory};
      best_weight = weight;
    }
  };
  consider(true);
  consider(false);
  return best;
}

}  // namespace convtrace::diff
