/// @file ranks.cpp
/// replicas-parted: ranks of data-parallel training whose equal weights are no longer equal.
/// same-data: such ranks train on the same batches, in the same or in another order.
///
/// Why it is a fault: ranks that hold the same weights after one step and add up their gradients
/// hold the same weights after every step. Ranks that take the same batches compute one batch
/// several times.
/// Judged: the weights of ranks that begin with equal weights; the gradients of a step where its
/// weights are not known, since an optimizer may reduce by itself. Others hold shards or do other
/// work. The same batches in another order are a hint: epochs that every rank shuffles for itself
/// may be meant.
/// A parting is a hint without evidence that the ranks are meant to stay equal. The evidence is
/// that they changed alike on unlike batches: as a whole in an earlier step, or for most parameters
/// in the step in which they part. Single values may be equal by chance: a bias before a
/// normalisation does not move, Adam's first step has only two sizes, a penalty does not depend on
/// the batch. Weights that are summed after the update are averaged periodically and differ in
/// between. tools/origin/judge/replicas.cpp judges each parameter, for which it holds the values of
/// all ranks at a time. Ranks are compared as a whole here, by sums of 24 bytes a step, one rank
/// after the other. Unlike there, ranks that differ completely after their first update are
/// reported, too.

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "reader/trace_reader.h"
#include "tools/check/judge.h"
#include "tools/common/text.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::check {
namespace {

constexpr unsigned kLeastSteps = 3;

/// Parameters and gradients of one step of a trace, in the order of the records.
struct Seen {
  std::string scope, slot;
  uint64_t hash = 0;
  format::Phase phase = format::Phase::kForward;
  bool tells = true;  ///< equal ones are no chance: it varies, and it is not the weight before
};
using Name = std::pair<format::StringId, format::StringId>;

/// Calls `take` with the statistics of the steps from `first` to `last`, and their trace.
template <typename Take>
void for_stats(const std::string& path, uint32_t first, uint32_t last, const Take& take) {
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) return;
  reader::TraceReader& trace = *opened.value();
  trace.select([first, last](const format::RecordHeader& chunk) {
    const bool inside = chunk.step_begin <= last && first <= chunk.step_end;
    return inside ? reader::kKindSet<format::TensorStats> : reader::kNoKinds;
  });
  while (const format::Event* event = trace.next()) {
    const auto* stats = std::get_if<format::TensorStats>(event);
    if (stats != nullptr && first <= stats->header.step && stats->header.step <= last)
      take(*stats, trace.definitions());
  }
}

/// One number in all elements, or none at all.
bool one_number(const format::TensorStats& value) {
  if (value.stats.count <= 1) return true;
  if (value.capture == format::Capture::kHash) return false;
  return value.stats.finite == 0 || value.stats.min == value.stats.max;
}

std::vector<Seen> weights_of(const std::string& path, uint32_t step) {
  std::vector<Seen> seen;
  std::map<Name, uint64_t> before;
  for_stats(path, step, step, [&](const format::TensorStats& value, const auto& names) {
    const std::string_view slot = names.text(value.slot);
    const Role role = diff::role_of(slot);
    if (role != Role::kParameter && role != Role::kGradient) return;
    const Name name{value.place.scope, value.slot};
    if (role == Role::kParameter && value.place.phase != format::Phase::kOptimizer) {
      before.emplace(name, value.stats.hash);
      return;
    }
    const auto was = before.find(name);
    const bool still = was != before.end() && was->second == value.stats.hash;
    seen.push_back({.scope = std::string(names.text(value.place.scope)),
                    .slot = std::string(slot),
                    .hash = value.stats.hash,
                    .phase = value.place.phase,
                    .tells = !still && !one_number(value)});
  });
  return seen;
}

/// Two ranks in one step.
struct Compared {
  const Seen* first = nullptr;  ///< the first difference; gradients precede their weights
  size_t common = 0;            ///< records that both have
  size_t alike = 0;             ///< records that are equal
  size_t alike_gradients = 0, unlike_gradients = 0;  ///< only records with `tells`
  size_t alike_weights = 0, unlike_weights = 0;

  /// @return whether most of the ranks' gradients or weights are equal.
  [[nodiscard]] bool share() const {
    return (alike_gradients != 0 && alike_gradients >= unlike_gradients) ||
           (alike_weights != 0 && alike_weights >= unlike_weights);
  }
};
Compared compare(const std::vector<Seen>& a, const std::vector<Seen>& b) {
  Compared result;
  std::map<std::pair<std::string_view, std::string_view>, const Seen*> other;
  for (const Seen& one : b) other[{one.scope, one.slot}] = &one;
  for (const Seen& one : a) {
    const auto found = other.find({one.scope, one.slot});
    if (found == other.end()) continue;
    ++result.common;
    const bool equal = found->second->hash == one.hash;
    if (equal) ++result.alike;
    if (!equal && result.first == nullptr) result.first = &one;
    if (equal && !(one.tells && found->second->tells)) continue;
    const bool weight = one.phase == format::Phase::kOptimizer;
    (weight ? (equal ? result.alike_weights : result.unlike_weights)
            : (equal ? result.alike_gradients : result.unlike_gradients))++;
  }
  return result;
}

/// @return whether weights are all-reduced after their update, in a step from `first` on: one by
/// one, or all in one tensor.
bool averages(const std::string& path, uint32_t first) {
  std::map<Name, std::pair<uint64_t, uint64_t>> weights;  // hash and elements
  std::set<uint64_t> hashes;                              // of updates in `updated`
  std::optional<uint32_t> updated;
  bool found = false;
  for_stats(path, first, UINT32_MAX, [&](const format::TensorStats& value, const auto& names) {
    const std::string_view slot = names.text(value.slot);
    if (diff::role_of(slot) == Role::kParameter && value.place.phase == format::Phase::kOptimizer) {
      if (updated != value.header.step) hashes.clear();
      updated = value.header.step;
      hashes.insert(value.stats.hash);
      weights[{value.place.scope, value.slot}] = {value.stats.hash, value.stats.count};
    } else if (updated == value.header.step && value.stats.count > 1 && slot.starts_with("sent:") &&
               names.text(value.op) == "all_reduce") {
      uint64_t all = 0;
      for (const auto& [name, weight] : weights) all += weight.second;
      found |= hashes.contains(value.stats.hash) || all == value.stats.count;
    }
  });
  return found;
}

class Ranks {
 public:
  explicit Ranks(const std::vector<RankResult>& ranks) {
    for (const RankResult& rank : ranks) ranks_.push_back(&rank);
  }

  std::vector<Finding> judge(std::vector<std::pair<std::string_view, uint64_t>>& looks) {
    // A restarted job has several traces of a rank: the one with most steps counts.
    std::ranges::stable_sort(ranks_, [](const RankResult* a, const RankResult* b) {
      return a->rank != b->rank ? a->rank < b->rank : a->steps.size() > b->steps.size();
    });
    std::set<uint32_t> known;
    std::erase_if(ranks_,
                  [&known](const RankResult* rank) { return !known.insert(rank->rank).second; });
    diff::ReplicaCheck replicas;
    uint64_t parted = 0;
    for (const RankResult* one : ranks_) {
      const RankResult& rank = *one;
      const size_t before = findings_.size();
      for (diff::ReplicaParting parting : replicas.add(rank.rank, weights_over_time(rank))) {
        --parting.step;
        tell_parted(parting);
      }
      parted += findings_.size() - before;
    }
    if (const uint64_t pairs = compare_data(); pairs != 0) looks.emplace_back("same-data", pairs);
    replicas_ = std::max(replicas_, parted);
    if (replicas_ != 0) looks.emplace_back("replicas-parted", replicas_);
    return std::move(findings_);
  }

 private:
  const RankResult& of(uint32_t rank) const {
    return **std::ranges::find_if(ranks_,
                                  [rank](const RankResult* one) { return one->rank == rank; });
  }

  /// The weights at the begin stand before step 0. A step without weights has its gradients.
  static std::vector<diff::ReplicaSums> weights_over_time(const RankResult& rank) {
    std::vector<diff::ReplicaSums> sums;
    if (rank.initial != 0) sums.push_back({.step = 0, .weights = rank.initial});
    for (const RankStep& step : rank.steps) {
      sums.push_back(step.sums);
      ++sums.back().step;
      if (step.sums.weights != 0) sums.back().gradients = 0;
    }
    return sums;
  }

  /// @return whether two ranks took different batches in a step; constant data count as different.
  static bool other_data(const RankStep& a, const RankStep& b) {
    return a.data != b.data || a.data == 0;
  }

  /// @return whether the ranks were meant to agree: in a step with different batches their weights
  /// moved alike or their gradients were equal, or most of them agree in the step itself.
  static bool meant_to_agree(const RankResult& a, const RankResult& b, uint32_t step,
                             const Compared& parted) {
    uint64_t weights = a.initial;
    for (auto x = a.steps.begin(), y = b.steps.begin(); x != a.steps.end() && y != b.steps.end();) {
      if (x->sums.step != y->sums.step) {
        ++(x->sums.step < y->sums.step ? x : y);
        continue;
      }
      if (x->sums.step >= step) return x->sums.step == step && other_data(*x, *y) && parted.share();
      const bool moved = x->sums.weights != 0 && x->sums.weights != weights;
      const bool reduced = x->sums.gradients != 0 && x->sums.gradients == y->sums.gradients;
      if (other_data(*x, *y) && (moved || reduced)) return true;
      if (x->sums.weights != 0) weights = x->sums.weights;
      ++x, ++y;
    }
    return false;
  }

  /// @return a finding of one of the two ranks, in the step in which they part, about a receive that has
  /// overwritten a gradient; or null.
  [[nodiscard]] const Finding* received_over(const diff::ReplicaParting& parting) const {
    for (const uint32_t rank : {parting.rank, parting.other})
      for (const Finding& one : of(rank).findings)
        if (one.id == "receive-overlaps" && one.step == parting.step &&
            one.slot.starts_with("grad:"))
          return &one;
    return nullptr;
  }

  void tell_parted(const diff::ReplicaParting& parting) {
    Finding finding{.id = "replicas-parted",
                    .severity = Severity::kError,
                    .rank = parting.rank,
                    .step = parting.step};
    const std::vector<Seen> here = weights_of(of(parting.rank).path, parting.step),
                            there = weights_of(of(parting.other).path, parting.step);
    const Compared compared = compare(here, there);
    const Seen* const first = compared.first;
    const bool in_gradients =
        first == nullptr ? parting.in_gradients : first->phase != format::Phase::kOptimizer;
    const bool other_parameters = first == nullptr && !parting.in_gradients;
    finding.text = "Rank " + std::to_string(parting.rank) + " parted from rank " +
                   std::to_string(parting.other) + " in step " + std::to_string(parting.step) +
                   ": " +
                   (other_parameters ? "they do not update the same parameters."
                    : in_gradients   ? "their gradients differ."
                                     : "equal gradients, other weights.");
    const bool meant = meant_to_agree(of(parting.rank), of(parting.other), parting.step, compared);
    const bool averaged = averages(of(parting.other).path, parting.step);
    if (!meant || averaged) finding.severity = Severity::kHint;
    if (first != nullptr) {
      finding.phase = first->phase;
      finding.scope = first->scope;
      finding.slot = first->slot;
      finding.evidence.push_back(
          "first of them: " + first->slot + " of " +
          (first->scope.empty() ? std::string("the root module") : first->scope));
    }
    finding.evidence.push_back(
        "equal on both ranks: the weights before this step" +
        (compared.common == 0
             ? "; no gradient and no weight of this step is recorded on both"
             : ", and " +
                   (compared.alike == 0 ? std::string("none") : std::to_string(compared.alike)) +
                   " of the " + std::to_string(compared.common) +
                   " gradients and weights of this step that both have"));
    if (averaged) finding.evidence.push_back("weights are summed over ranks after their update");
    finding.cause =
        finding.severity == Severity::kHint
            ? "weights that are averaged every few steps, or shards of an optimizer, "
              "are like this; else gradients are never reduced"
        : in_gradients
            ? "gradients that are not reduced (no_sync, a parameter outside of the "
              "reduction, a hook), or a reduction that gives unlike results"
            : "an update that depends on the rank, or memory of the weights was overwritten";
    if (const Finding* const over = received_over(parting); over != nullptr && in_gradients) {
      finding.evidence.push_back("rank " + std::to_string(over->rank) + ": " + over->text);
      finding.cause = over->op + " has received into memory of gradients (receive-overlaps)";
    }
    finding.next =
        "compare the traces of the two ranks: convtrace-diff TRACE OTHER names the first value "
        "that differs";
    findings_.push_back(std::move(finding));
  }

  /// @return how many ranks have a replica before them.
  uint64_t compare_data() {
    std::map<uint64_t, const RankResult*> by_weights, by_data, by_batches;
    uint64_t replicas = 0;
    for (const RankResult* one : ranks_) {
      const RankResult& rank = *one;
      const uint64_t weights = rank.initial;
      if (weights == 0) continue;
      uint64_t data = weights, batches = weights;
      std::set<uint64_t> unlike;
      bool known = rank.steps.size() >= kLeastSteps;
      for (const RankStep& step : rank.steps) {
        known &= step.data != 0;
        data = diff::mix_all({data, step.sums.step, step.data});
        batches += diff::mix_all({step.data});  // in any order
        unlike.insert(step.data);
      }
      const bool replica = !by_weights.emplace(weights, &rank).second;
      replicas_ += replica ? 1 : 0;
      replicas += replica && known ? 1 : 0;
      if (!known) continue;
      const auto [same, is_new] = by_data.emplace(data, &rank);
      const auto [alike, is_other] = by_batches.emplace(batches, &rank);
      if (!is_new) {
        tell_same(*same->second, rank, true);
      } else if (!is_other && unlike.size() >= kLeastSteps) {
        tell_same(*alike->second, rank, false);
      }
    }
    return replicas;
  }

  void tell_same(const RankResult& a, const RankResult& b, bool in_order) {
    Finding finding{.id = "same-data",
                    .severity = in_order ? Severity::kWarning : Severity::kHint,
                    .rank = b.rank,
                    .step = b.steps.front().sums.step};
    finding.phase = format::Phase::kData;
    finding.text = "Rank " + std::to_string(b.rank) + " trains on the same batches as rank " +
                   std::to_string(a.rank) + " in all " + tools::counted(b.steps.size(), "step") +
                   (in_order ? "." : ", in another order.");
    finding.evidence = {
        "equal weights at the begin, and equal hashes of all inputs of root modules " +
        std::string(in_order ? "in each step" : "in the steps as a whole")};
    finding.cause = "a sampler that does not know its rank, or equal seeds for unlike shards";
    finding.next = "use DistributedSampler with the rank, and call set_epoch()";
    findings_.push_back(std::move(finding));
  }

  std::vector<const RankResult*> ranks_;
  std::vector<Finding> findings_;
  uint64_t replicas_ = 0;  ///< ranks with one before them
};

}  // namespace

std::vector<Finding> judge_ranks(const std::vector<RankResult>& ranks,
                                 std::vector<std::pair<std::string_view, uint64_t>>& looks) {
  return Ranks(ranks).judge(looks);
}

}  // namespace convtrace::check
