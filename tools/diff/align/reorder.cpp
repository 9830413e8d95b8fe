#include "tools/diff/align/reorder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/diff/align/passes.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {
namespace {

using Records = std::span<const ValueRecord>;

constexpr float kMovedValue = 0.95F, kLikeValue = 0.9F;
/// If many values are similar to many others, similarity does not show who is whose partner.
constexpr size_t kMostLikeEach = 8;
/// The largest distance of partners, in units of the roundoff.
constexpr double kReach = 256;

/// Matches of one key whose values differ.
class Group {
 public:
  Group(Alignment& alignment, std::vector<uint32_t> matches, Records base, Records cand)
      : alignment_(alignment), matches_(std::move(matches)), base_(base), cand_(cand) {}

  void exchange() {
    exchange_equal();
    std::erase_if(matches_, [&](uint32_t m) {
      const Match& match = alignment_.matches[m];
      return alike(base_[match.base], cand_[match.cand]);
    });
    if (matches_.size() > 1) exchange_like();
  }

 private:
  struct Pair {
    double distance = 0;
    uint64_t hashes = 0;  ///< breaks ties in the same way whichever run is the baseline
    uint32_t match = 0, cand = 0;
  };

  void settle(uint32_t m, uint32_t cand, float confidence) {
    Match& match = alignment_.matches[m];
    match = {match.base, cand, MatchedBy::kReordered, confidence};
  }

  /// Pairs the matches and the candidates that have no partner, in their order.
  void settle_rest(std::vector<uint32_t> left, std::vector<uint32_t> cands) {
    std::ranges::sort(cands);
    for (size_t i = 0; i < left.size(); ++i) alignment_.matches[left[i]].cand = cands[i];
    matches_ = std::move(left);
  }

  void exchange_equal() {
    std::unordered_multimap<uint64_t, uint32_t> by_value;
    for (const uint32_t m : matches_) {
      const uint32_t c = alignment_.matches[m].cand;
      by_value.emplace(cand_[c].stats.hash, c);
    }
    std::vector<uint32_t> left, cands;
    for (const uint32_t m : matches_) {
      const auto partner = by_value.find(base_[alignment_.matches[m].base].stats.hash);
      if (partner == by_value.end()) {
        left.push_back(m);
        continue;
      }
      settle(m, partner->second, kMovedValue);
      by_value.erase(partner);
    }
    for (const auto& [hash, c] : by_value) cands.push_back(c);
    settle_rest(std::move(left), std::move(cands));
  }

  void exchange_like() {
    std::vector<uint32_t> cands;
    for (const uint32_t m : matches_) cands.push_back(alignment_.matches[m].cand);
    std::unordered_set<uint32_t> found, taken;
    for (const Pair& pair : like_pairs(cands)) {
      if (found.contains(pair.match) || taken.contains(pair.cand)) continue;
      found.insert(pair.match);
      taken.insert(pair.cand);
      settle(pair.match, pair.cand, kLikeValue);
    }
    std::vector<uint32_t> left = matches_;
    std::erase_if(left, [&](uint32_t m) { return found.contains(m); });
    std::erase_if(cands, [&](uint32_t c) { return taken.contains(c); });
    settle_rest(std::move(left), std::move(cands));
  }

  /// @return similar pairs, the most similar first; empty if there are too many to be meaningful.
  [[nodiscard]] std::vector<Pair> like_pairs(std::vector<uint32_t> cands) const {
    const auto norm = [&](uint32_t c) { return cand_[c].stats.l2; };
    std::erase_if(cands, [&](uint32_t c) { return std::isnan(norm(c)); });
    std::ranges::sort(cands, {}, norm);
    std::vector<Pair> pairs;
    for (const uint32_t m : matches_) {
      const ValueRecord& a = base_[alignment_.matches[m].base];
      // Wider than the limit of alike(), so that no pair is missed.
      const double reach = 2 * kReach * unit_roundoff(a.dtype) * a.stats.l2;
      auto c = std::ranges::lower_bound(cands, a.stats.l2 - reach, {}, norm);
      for (; c != cands.end() && norm(*c) <= a.stats.l2 + reach; ++c) {
        const ValueRecord& b = cand_[*c];
        if (!alike(a, b)) continue;
        pairs.push_back({std::abs(a.stats.l2 - b.stats.l2), a.stats.hash + b.stats.hash, m, *c});
        if (pairs.size() > kMostLikeEach * matches_.size()) return {};
      }
    }
    std::ranges::sort(pairs, {}, [](const Pair& p) { return std::tuple(p.distance, p.hashes); });
    return pairs;
  }

  Alignment& alignment_;
  std::vector<uint32_t> matches_;  ///< indices into Alignment::matches
  Records base_, cand_;
};

}  // namespace

bool alike(const ValueRecord& a, const ValueRecord& b) {
  const ValueView one{a, {}, {}}, other{b, {}, {}};
  const Comparison comparison = compare(one, other);
  if (comparison.field != Field::kRms) return agrees(comparison.verdict);
  return measure(one, other).rms <= kReach * unit_roundoff(a.dtype);
}

namespace {

/// Exchanges partners among the matches of each key that `key_of` gives and whose values differ.
/// @param key_of  the key of a record without what the order decides; none: the record stays.
/// @return whether a match has another partner.
template <typename KeyOf>
bool exchange_in(Alignment& alignment, Records base, Records cand, KeyOf key_of) {
  std::unordered_map<RecordKey, std::vector<uint32_t>, KeyHash> groups;
  for (uint32_t m = 0; m < alignment.matches.size(); ++m) {
    const Match& match = alignment.matches[m];
    if (base[match.base].stats.hash == cand[match.cand].stats.hash) continue;
    if (const std::optional<RecordKey> key = key_of(base[match.base])) groups[*key].push_back(m);
  }
  bool any = false;
  for (auto& [key, group] : groups) {
    if (group.size() < 2) continue;
    const std::vector<uint32_t> members = group;
    Group(alignment, std::move(group), base, cand).exchange();
    any |= std::ranges::any_of(
        members, [&](uint32_t m) { return alignment.matches[m].how == MatchedBy::kReordered; });
  }
  return any;
}

RecordKey without_order(RecordKey key, bool of_passes) {
  key.occurrence = 0;
  if (of_passes) key.call = 0;
  return key;
}

}  // namespace

void undo_reordering(Alignment& alignment, Records base, Records cand) {
  using Key = std::optional<RecordKey>;
  exchange_in(alignment, base, cand, [](const ValueRecord& record) -> Key {
    if (!record.key.family) return std::nullopt;
    return without_order(record.key, false);
  });
  const bool moved = exchange_in(alignment, base, cand, [](const ValueRecord& record) -> Key {
    if (record.kind != Role::kLoss) return std::nullopt;
    return without_order(record.key, true);
  });
  if (!moved) return;
  exchange_in(alignment, base, cand, [](const ValueRecord& record) -> Key {
    if (record.kind == Role::kLoss || !is_parted(record, Parted::kPasses)) return std::nullopt;
    return without_order(record.key, true);
  });
}

}  // namespace convtrace::diff
