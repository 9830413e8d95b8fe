/// @file ranks.cpp
/// replicas-parted: ranks of data-parallel training whose equal weights are no longer equal.
/// same-data: such ranks train on the same batches, in the same or in another order.
///
/// Why it is a fault: ranks that hold the same weights after one step and add up their gradients
/// hold the same weights after every step. Ranks that take the same batches compute one batch
/// several times.
/// Judged: ranks that begin with equal weights. Others hold shards or do other work. A hint where
/// they share nothing from the first step on: nothing says that they are meant to. The same
/// batches in another order are a hint: epochs that every rank shuffles for itself may be meant.
/// tools/origin/judge/replicas.cpp judges each parameter, for which it holds the values of all ranks
/// at a time. Ranks are compared as a whole here, by sums of 24 bytes a step, one rank after the
/// other; and unlike there, ranks that share nothing after their first update are told.

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "reader/trace_reader.h"
#include "tools/check/judge.h"
#include "tools/common/text.h"
#include "tools/diff/model/hash_mix.h"

namespace convtrace::check {
namespace {

constexpr unsigned kLeastSteps = 3;

/// Parameters and gradients of one step of a trace, in the order of the records, by their names.
struct Seen {
  std::string scope, slot;
  uint64_t hash = 0;
  format::Phase phase = format::Phase::kForward;
};
std::vector<Seen> weights_of(const std::string& path, uint32_t step) {
  std::vector<Seen> seen;
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) return seen;
  reader::TraceReader& trace = *opened.value();
  trace.select([step](const format::RecordHeader& chunk) {
    const bool inside = chunk.step_begin <= step && step <= chunk.step_end;
    return inside ? reader::kKindSet<format::TensorStats> : reader::kNoKinds;
  });
  while (const format::Event* event = trace.next()) {
    const auto* stats = std::get_if<format::TensorStats>(event);
    if (stats == nullptr || stats->header.step != step) continue;
    const std::string_view slot = trace.definitions().text(stats->slot);
    const Role role = role_of(slot);
    const bool update = role == Role::kParameter && stats->place.phase == format::Phase::kOptimizer;
    if (!update && role != Role::kGradient) continue;
    seen.push_back({std::string(trace.definitions().text(stats->place.scope)), std::string(slot),
                    stats->stats.hash, stats->place.phase});
  }
  return seen;
}

/// The first record of both that differs: gradients stand before the weights that they move.
/// @param[out] alike  how many records are equal.
const Seen* first_unlike(const std::vector<Seen>& a, const std::vector<Seen>& b, size_t& alike) {
  const Seen* first = nullptr;
  std::map<std::pair<std::string, std::string>, uint64_t> other;
  for (const Seen& one : b) other[{one.scope, one.slot}] = one.hash;
  for (const Seen& one : a) {
    const auto found = other.find({one.scope, one.slot});
    if (found == other.end()) continue;
    if (found->second == one.hash) {
      ++alike;
    } else if (first == nullptr) {
      first = &one;
    }
  }
  return first;
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
      std::vector<diff::ReplicaSums> sums;  // the weights at the begin stand before step 0
      if (rank.initial != 0) sums.push_back({.step = 0, .weights = rank.initial});
      for (const RankStep& step : rank.steps) {
        sums.push_back(step.sums);
        ++sums.back().step;
      }
      const size_t before = findings_.size();
      for (diff::ReplicaParting parting : replicas.add(rank.rank, std::move(sums))) {
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

  void tell_parted(const diff::ReplicaParting& parting) {
    Finding finding{.id = "replicas-parted",
                    .severity = Severity::kError,
                    .rank = parting.rank,
                    .step = parting.step};
    const std::vector<Seen> here = weights_of(of(parting.rank).path, parting.step),
                            there = weights_of(of(parting.other).path, parting.step);
    finding.text =
        "Rank " + std::to_string(parting.rank) + " parted from rank " +
        std::to_string(parting.other) + " in step " + std::to_string(parting.step) + ": " +
        (parting.in_gradients ? "their gradients differ." : "equal gradients, other weights.");
    size_t alike = 0;
    const Seen* const first = first_unlike(here, there, alike);
    const bool from_the_start = parting.step == of(parting.rank).steps.front().sums.step;
    const bool shared_nothing = alike == 0 && from_the_start;
    if (shared_nothing) finding.severity = Severity::kHint;
    if (first != nullptr) {
      finding.phase = first->phase;
      finding.scope = first->scope;
      finding.slot = first->slot;
      finding.evidence.push_back(
          "first of them: " + first->slot + " of " +
          (first->scope.empty() ? std::string("the root module") : first->scope));
    }
    finding.evidence.push_back("equal on both ranks: the weights before this step, " +
                               (alike == 0 ? "and none" : "and " + std::to_string(alike)) +
                               " of its gradients and weights");
    finding.cause =
        shared_nothing ? "weights that are averaged every few steps, or shards of an optimizer, "
                         "are like this; else gradients are never reduced"
        : parting.in_gradients
            ? "gradients that are not reduced (no_sync, a parameter outside of the "
              "reduction, a hook), or a reduction that gives unlike results"
            : "an update that depends on the rank, or memory of the weights was overwritten";
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
