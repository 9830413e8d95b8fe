// Each kind of fault does what it says, where it says, and nothing before.

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/support/catch.h"
#include "tests/unit/simulate/job_run.h"

namespace convtrace::test {
namespace {

using simulate::FaultKind;
using simulate::Options;

constexpr uint32_t kRank = 9, kStep = 2;

Options options_of(uint64_t seed) {
  Options options;
  options.ranks = 16, options.data = 2, options.tensor = 2, options.stages = 4;
  options.steps = 4, options.elements = 64, options.seed = seed;
  return options;
}

struct Pair {
  RecordedJob clean, faulty;
};
Pair pair_of(FaultKind kind, uint64_t seed) {
  Options options = options_of(seed);
  Pair jobs{job_of(options), {}};
  options.origins = {{kRank, kStep, kind}};
  jobs.faulty = job_of(options);
  CHECK(jobs.faulty.result.faults[0].struck);
  return jobs;
}

struct Difference {
  uint32_t rank = 0;
  const RecordedValue* clean = nullptr;
  const RecordedValue* faulty = nullptr;
};
/// The first value of each rank that the two jobs do not have alike, by time. Clocks do not depend
/// on values.
std::vector<Difference> differences_of(const Pair& jobs) {
  std::vector<Difference> found;
  for (uint32_t rank = 0; rank < jobs.clean.ranks.size(); ++rank) {
    const auto &clean = jobs.clean.ranks[rank].values, &faulty = jobs.faulty.ranks[rank].values;
    for (size_t i = 0; i < std::min(clean.size(), faulty.size()); ++i) {
      if (clean[i].stats.hash == faulty[i].stats.hash) continue;
      found.push_back({rank, &clean[i], &faulty[i]});
      break;
    }
  }
  std::sort(found.begin(), found.end(), [](const Difference& a, const Difference& b) {
    return a.faulty->t_ns < b.faulty->t_ns;
  });
  return found;
}

const RecordedCall* call_of(const RecordedRank& rank, const std::string& group, uint64_t number,
                            const std::string& op) {
  for (const RecordedCall& call : rank.calls)
    if (call.group == group && call.event.number == number && call.op == op) return &call;
  return nullptr;
}

TEST_CASE("simulate: a NaN begins on its rank and reaches all", "[simulate]") {
  const Pair jobs = pair_of(FaultKind::kNan, GENERATE(range(0U, 8U)));
  const auto differences = differences_of(jobs);
  REQUIRE(differences.size() == 16);
  CHECK(differences[0].rank == kRank);
  CHECK(differences[0].faulty->step == kStep);
  CHECK(differences[0].faulty->stats.nan == 1);
  for (const RecordedRank& rank : jobs.faulty.ranks)
    for (const RecordedValue& value : rank.values)
      CHECK((value.step >= kStep || value.stats.nan == 0));
  for (const RecordedRank& rank : jobs.faulty.ranks) CHECK(rank.values.back().step == 3);
  const auto& last = jobs.faulty.ranks[0].values;
  CHECK(std::any_of(last.begin(), last.end(), [](const RecordedValue& value) {
    return value.step == kStep && value.slot == "param:weight" && value.stats.nan > 0;
  }));
}

TEST_CASE("simulate: scale multiplies what one rank sends from a step on", "[simulate]") {
  const Pair jobs = pair_of(FaultKind::kScale, GENERATE(range(0U, 3U)));
  const auto differences = differences_of(jobs);
  REQUIRE_FALSE(differences.empty());
  CHECK(differences[0].rank == kRank);
  CHECK(differences[0].faulty->step == kStep);
  CHECK(differences[0].faulty->slot == "sent:0");
  const double factor = double{jobs.faulty.result.faults[0].factor};
  CHECK(factor >= 2);
  CHECK(factor <= 8);
  CHECK(differences[0].faulty->stats.l2 / differences[0].clean->stats.l2 == Approx(factor));
  size_t scaled = 0;
  for (size_t i = 0; i < jobs.clean.ranks[kRank].calls.size(); ++i) {
    const RecordedCall& was = jobs.clean.ranks[kRank].calls[i];
    const RecordedCall& is = jobs.faulty.ranks[kRank].calls[i];
    if (was.group != "c10d:dp5" || was.op != "all_reduce" || was.event.header.step != kStep + 1)
      continue;
    const double ratio = is.sent[0].stats.l2 / was.sent[0].stats.l2;
    CHECK(ratio > 0.8 * factor);  // trained with other gradients in between
    CHECK(ratio < 1.25 * factor);
    ++scaled;
  }
  CHECK(scaled == 2);
}

TEST_CASE("simulate: what is lost is missing for all members alike", "[simulate]") {
  const Pair jobs = pair_of(FaultKind::kLost, GENERATE(range(0U, 6U)));
  const auto& fault = jobs.faulty.result.faults[0];
  const auto meeting =
      meetings_of(jobs.faulty).at({fault.group, fault.number, format::kNoPeer, format::kNoPeer});
  CHECK(meeting.size() == 2);
  const RecordedValue& got = meeting.begin()->second->received[0];
  CHECK(got.step == kStep);
  std::optional<format::Stats> kept;
  for (const auto& [rank, call] : meeting) {
    CHECK(call->received[0].stats.hash == got.stats.hash);
    const auto* own = call_of(jobs.faulty.ranks[kRank], fault.group, fault.number, fault.op);
    if (call != own) kept = call->sent[0].stats;
  }
  REQUIRE(kept);
  CHECK(kept->hash == got.stats.hash);  // of two members the other one's is left
  const auto differences = differences_of(jobs);
  REQUIRE(differences.size() > 1);
  CHECK(differences[0].faulty->slot == "received:0");
  CHECK(differences[0].faulty->step == kStep);
}

TEST_CASE("simulate: a bit flips on one rank alone", "[simulate]") {
  const uint64_t seed = GENERATE(range(0U, 8U));
  const Pair jobs = pair_of(FaultKind::kFlip, seed);
  const auto differences = differences_of(jobs);
  REQUIRE_FALSE(differences.empty());
  CHECK(differences[0].rank == kRank);
  CHECK(differences[0].faulty->step == kStep);
  const std::string& slot = differences[0].faulty->slot;
  CHECK((slot == "param:weight" || slot == "received:0"));
}

TEST_CASE("simulate: stale parameters are those of before", "[simulate]") {
  const Pair jobs = pair_of(FaultKind::kStale, 1);
  const auto differences = differences_of(jobs);
  REQUIRE_FALSE(differences.empty());
  CHECK(differences[0].rank == kRank);
  CHECK(differences[0].faulty->step == kStep);
  CHECK(differences[0].faulty->slot == "param:weight");
  std::optional<uint64_t> before;
  for (const RecordedValue& value : jobs.faulty.ranks[kRank].values) {
    if (value.slot != "param:weight" || value.scope != differences[0].faulty->scope) continue;
    if (value.step == kStep) CHECK(value.stats.hash == before);
    if (value.step == kStep + 1) CHECK(value.stats.hash != before);
    before = value.stats.hash;
  }
}

/// Calls of a step in a group, as the places where they were made.
std::vector<std::string> order_of(const RecordedRank& rank, const std::string& group) {
  std::vector<std::string> order;
  for (const RecordedCall& call : rank.calls)
    if (call.event.header.step == kStep && (group.empty() || call.group == group))
      order.push_back(call.group + ' ' + call.op + ' ' + call.scope + ' ' +
                      std::to_string(call.event.place.call) + ' ' +
                      std::to_string(static_cast<int>(call.event.place.phase)));
  return order;
}

TEST_CASE("simulate: a call is left out, and later ones have other numbers", "[simulate]") {
  const Pair jobs = pair_of(FaultKind::kSkip, GENERATE(range(0U, 12U)));
  const auto& fault = jobs.faulty.result.faults[0];
  const auto was = order_of(jobs.clean.ranks[kRank], ""),
             is = order_of(jobs.faulty.ranks[kRank], "");
  const auto [at, other] = std::mismatch(was.begin(), was.end(), is.begin(), is.end());
  REQUIRE(at != was.end());
  CHECK(at->starts_with(fault.group + ' ' + fault.op));
  CHECK(std::equal(other, is.end(), at + 1, at + 1 + (is.end() - other)));
  for (uint32_t rank = 0; rank < 16; ++rank) {
    if (rank == kRank) continue;
    const auto clean = order_of(jobs.clean.ranks[rank], ""),
               faulty = order_of(jobs.faulty.ranks[rank], "");
    REQUIRE(faulty.size() <= clean.size());
    CHECK(std::equal(faulty.begin(), faulty.end(), clean.begin()));
    CHECK(jobs.faulty.ranks[rank].is_closed != jobs.faulty.result.hangs);
  }
  if (fault.op == "all_reduce") CHECK(jobs.faulty.result.hangs);
}

TEST_CASE("simulate: two calls are made in the other order", "[simulate]") {
  const Pair jobs = pair_of(FaultKind::kSwap, GENERATE(range(0U, 12U)));
  const auto& fault = jobs.faulty.result.faults[0];
  const auto was = order_of(jobs.clean.ranks[kRank], ""),
             is = order_of(jobs.faulty.ranks[kRank], "");
  const auto [at, other] = std::mismatch(was.begin(), was.end(), is.begin(), is.end());
  REQUIRE(at != was.end());
  REQUIRE(other != is.end());
  // A TP call between two buckets may come before the one that is too early.
  const auto early = std::find_if(other, is.end(), [&](const std::string& one) {
    return one.starts_with(fault.group + ' ' + fault.op);
  });
  CHECK(early != is.end());
  CHECK(std::find(at, was.end(), *early) > at);
  CHECK((jobs.faulty.result.hangs || std::is_permutation(is.begin(), is.end(), was.begin())));
}

TEST_CASE("simulate: what cannot go wrong is an error", "[simulate]") {
  Options options;
  options.ranks = 1, options.steps = 2;
  options.origins = {{0, 1, FaultKind::kLost}};
  CHECK_THROWS_WITH(job_of(options), Catch::Contains("lost"));
  options.origins = {{1, 1, FaultKind::kNan}};
  CHECK_THROWS_WITH(job_of(options), Catch::Contains("no rank 1"));
}

TEST_CASE("simulate: several faults in one job", "[simulate]") {
  Options options = options_of(3);
  options.origins = {{2, 1, FaultKind::kFlip}, {11, 3, FaultKind::kNan}};
  const RecordedJob job = job_of(options);
  CHECK(job.result.faults[0].struck);
  CHECK(job.result.faults[1].struck);
  const auto has_nan = [](const RecordedValue& value) {
    return value.stats.nan > 0 && value.step == 3;
  };
  CHECK(std::any_of(job.ranks[11].values.begin(), job.ranks[11].values.end(), has_nan));
}

}  // namespace
}  // namespace convtrace::test
