#include "tools/diff/cause/rules.h"

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

/// @return whether the finding is about the root's op, or about an op in the module call that has
/// the root as its value.
bool is_about_op_of(const FindingReport& finding, const RecordReport& root) {
  if (!root.op.empty()) return finding.op == root.op;
  return !finding.op.empty() && !root.scope.empty() && finding.scope == root.scope &&
         finding.phase == root.phase;
}

/// @return whether the finding is about the root's own value: a use of freed memory may be told when
/// the memory is used again, after the value was recorded.
bool is_about_value(const FindingReport& finding, const RecordReport& root) {
  return !root.op.empty() &&
         std::tie(finding.step, finding.phase, finding.scope, finding.call, finding.op,
                  finding.slot) ==
             std::tie(root.step, root.phase, root.scope, root.call, root.op, root.slot);
}

/// @return whether the finding is about what another rank may have sent to the root, in the same
/// collective or as a message.
bool is_of_sender(const FindingReport& finding, const RecordReport& root) {
  const bool is_message = finding.op.ends_with("send") && root.op.ends_with("recv");
  return finding.rank != root.rank && finding.step == root.step &&
         finding.level == format::Level::kError && root.slot.starts_with("received:") &&
         finding.slot.starts_with("sent:") && (is_message || finding.op == root.op);
}

/// @return whether the finding is about the op whose backward made the root, in the root's step.
bool is_about_maker_of(const FindingReport& finding, const RootReport& root) {
  return root.made_by && finding.step == root.record.step && !finding.op.empty() &&
         std::ranges::any_of(root.made_by->makers, [&](const Maker& maker) {
           return finding.op == maker.op && finding.scope == maker.scope &&
                  finding.call == maker.call;
         });
}

/// @return whether two runs that both have the finding may still differ: by the earlier contents of
/// the memory, or by the outcome of a race.
bool differs_by_chance(format::FindingKind kind) {
  using Kind = format::FindingKind;
  return kind == Kind::kNeverWritten || kind == Kind::kCrossStreamReuse ||
         kind == Kind::kUsedBeforeWait || kind == Kind::kReceiveOverlaps;
}

/// A larger weight means a better explanation.
using Weight = std::tuple<bool, bool, bool, bool, bool, bool, bool, uint32_t, uint64_t>;

}  // namespace

std::optional<FindingCause> find_cause(const RootReport& root, const Findings& base,
                                       const Findings& cand) {
  const RecordReport& record = root.record;
  std::optional<FindingCause> best;
  Weight best_weight;
  const auto consider = [&](bool in_cand) {
    const Findings& own = in_cand ? cand : base;
    const SideReport& side = in_cand ? record.cand : record.base;
    for (size_t i = 0; i < own.list.size(); ++i) {
      const FindingReport& finding = own.list[i];
      const bool same_rank = finding.rank == record.rank, sent = is_of_sender(finding, record);
      if (finding.suppressed || !(same_rank || sent)) continue;
      const bool error = finding.level == format::Level::kError;
      if (!error && finding.level != format::Level::kWarning) continue;
      const bool same_memory = same_rank && is_about_memory_of(finding, record, side);
      const bool of_maker = is_about_maker_of(finding, root);
      const bool in_both = has_counterpart(finding, in_cand ? base : cand);
      if (!error && !same_memory && !of_maker && !is_about_op_of(finding, record)) continue;
      if (!error && in_both && !differs_by_chance(finding.kind)) continue;
      const bool before =
          finding.step < record.step || (finding.step == record.step && finding.t_ns <= side.t_ns);
      if (!before && !(same_memory && finding.step == record.step) &&
          !is_about_value(finding, record) && !sent)
        continue;
      // The reader of a stale value is affected by an earlier event in its memory.
      const Weight weight{same_rank,
                          of_maker,
                          same_memory,
                          !in_both,
                          error,
                          finding.kind != format::FindingKind::kStaleRead,
                          finding.scope == record.scope,
                          finding.step,
                          finding.t_ns};
      if (best && weight <= best_weight) continue;
      best = FindingCause{in_cand, finding, i, same_memory};
      best_weight = weight;
    }
  };
  consider(true);
  consider(false);
  return best;
}

}  // namespace convtrace::diff
