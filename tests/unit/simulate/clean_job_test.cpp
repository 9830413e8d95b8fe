// A job in which nothing goes wrong: what one rank sends is what others receive.

#include <algorithm>
#include <cmath>
#include <set>

#include "cupti/stats/tile/hash.h"
#include "tests/simulate/layout.h"
#include "tests/support/catch.h"
#include "tests/unit/simulate/job_run.h"

namespace convtrace::test {
namespace {

using simulate::Options;
using simulate::Types;

/// The sum of what all send, against `got`, within the rounding of its type.
bool adds_up(const Meeting& meeting, const RecordedValue& got, double share) {
  const double rounding = got.dtype == format::DType::kBF16 ? 0x1p-8 : 0x1p-20;
  double size = got.stats.l2;
  for (const auto& [rank, call] : meeting) size += call->sent[0].stats.l2 * share;
  const size_t parts = got.whole.empty() ? format::Sketch::kBuckets : got.whole.size();
  for (size_t i = 0; i < parts; ++i) {
    double sum = 0;
    for (const auto& [rank, call] : meeting)
      sum += got.whole.empty() ? bucket_of(call->sent[0].stats, i) : double{call->sent[0].whole[i]};
    const double found = got.whole.empty() ? bucket_of(got.stats, i) : double{got.whole[i]};
    if (std::fabs(sum * share - found) > rounding * size) return false;
  }
  return true;
}

void check_reduction(const Meeting& meeting) {
  const RecordedCall& first = *meeting.begin()->second;
  const double share = first.reduction == "avg" ? 1.0 / static_cast<double>(meeting.size()) : 1;
  double sent = 0, received = 0, size = 0;
  for (const auto& [rank, call] : meeting) {
    REQUIRE(call->sent.size() == 1);
    const bool gets = call->op != "reduce" || rank == 0;
    REQUIRE(call->received.size() == (gets ? 1 : 0));
    sent += call->sent[0].stats.sum.as_f64();
    size += call->sent[0].stats.l1.as_f64();
    if (!gets) continue;
    received += call->received[0].stats.sum.as_f64();
    if (call->op == "reduce_scatter") continue;
    CHECK(call->received[0].stats.hash == first.received[0].stats.hash);
    CHECK(adds_up(meeting, call->received[0], share));
  }
  if (first.op == "reduce_scatter") CHECK(std::fabs(sent - received) <= 1e-6 * size);
}

void check_meeting(const Meeting& meeting) {
  INFO(meeting.begin()->second->op << " of " << meeting.begin()->second->group << " number "
                                   << meeting.begin()->second->event.number << " in step "
                                   << meeting.begin()->second->event.header.step);
  const RecordedCall& first = *meeting.begin()->second;
  if (!first.reduction.empty()) return check_reduction(meeting);
  for (const auto& [rank, call] : meeting) {
    const std::string& op = call->op;
    CHECK(call->sent.size() ==
          (op == "barrier" || op == "recv" || (op == "broadcast" && rank != 0) ? 0 : 1));
  }
  uint64_t joined = 0;
  if (first.op == "all_gather")
    joined = stats::concat_hashes(first.event.sent * format::element_bytes(first.event.dtype),
                                  first.event.group_size,
                                  [&](uint32_t i) { return meeting.at(i)->sent[0].stats.hash; });
  for (const auto& [rank, call] : meeting) {
    const std::string& op = call->op;
    const size_t all = op == "gather" && rank == 0                         ? meeting.size()
                       : op == "barrier" || op == "send" || op == "gather" ? 0
                                                                           : 1;
    REQUIRE(call->received.size() == all);
    if (op == "broadcast") CHECK(call->received[0].stats.hash == first.sent[0].stats.hash);
    if (op == "all_gather") {
      CHECK(call->received[0].stats.hash == first.received[0].stats.hash);
      CHECK(call->received[0].stats.hash == joined);
    }
    for (size_t i = 0; op == "gather" && i < all; ++i) {
      CHECK(call->received[i].slot == "received:" + std::to_string(i));
      CHECK(call->received[i].stats.hash ==
            meeting.at(static_cast<uint32_t>(i))->sent[0].stats.hash);
    }
    if (op != "recv") continue;
    CHECK(meeting.at(call->event.peer)->op == "send");
    CHECK(call->received[0].stats.hash == meeting.at(call->event.peer)->sent[0].stats.hash);
  }
}

void check_calls(const RecordedJob& job) {
  for (const RecordedRank& rank : job.ranks) {
    CHECK(rank.is_closed);
    uint64_t id = 0;
    for (const RecordedCall& call : rank.calls) {
      CHECK(call.event.id == ++id);
      for (const auto* values : {&call.sent, &call.received}) {
        uint64_t elements = 0;
        for (const RecordedValue& value : *values) {
          CHECK(value.step == call.event.header.step);
          CHECK(value.op == call.op);
          CHECK(value.scope == call.scope);
          CHECK(value.phase == call.event.place.phase);
          CHECK(value.storage == 0);
          CHECK(value.dtype == call.event.dtype);
          elements += value.stats.count;
        }
        CHECK(elements == (values == &call.sent ? call.event.sent : call.event.received));
      }
    }
  }
}

/// Parameters and gradients, in the order of the records.
std::vector<const RecordedValue*> weights_of(const RecordedRank& rank) {
  std::vector<const RecordedValue*> weights;
  for (const RecordedValue& value : rank.values)
    if (value.slot.starts_with("param:") || value.slot.starts_with("grad:"))
      weights.push_back(&value);
  return weights;
}

void check_replicas(const RecordedJob& job) {
  const simulate::Layout& layout = job.result.layout;
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    const auto own = weights_of(job.ranks[rank]);
    const auto others = weights_of(job.ranks[rank - layout.data_of(rank) * layout.tensor]);
    REQUIRE(own.size() == others.size());
    REQUIRE_FALSE(own.empty());
    for (size_t i = 0; i < own.size(); ++i) {
      CHECK(own[i]->slot == others[i]->slot);
      CHECK(own[i]->scope == others[i]->scope);
      CHECK(own[i]->stats.hash == others[i]->stats.hash);
    }
  }
}

TEST_CASE("simulate: what ranks of a clean job send is what others receive", "[simulate]") {
  Options options;
  options.steps = 3;
  options.elements = 64;
  SECTION("all kinds of groups") {
    options.ranks = 24, options.data = 2, options.tensor = 3, options.stages = 4;
  }
  SECTION("replicas alone, bf16") {
    options.ranks = 8, options.data = 8, options.tensor = 1, options.stages = 1;
    options.types = Types::kBF16;
  }
  SECTION("divided updates") {
    options.ranks = 12, options.data = 3, options.tensor = 2, options.stages = 2;
    options.sharded = true;
  }
  SECTION("a pipeline alone, and one row of tensor-parallel ranks") {
    const bool row = GENERATE(false, true);
    options.ranks = 4, options.data = 1, options.tensor = row ? 4 : 1, options.stages = row ? 1 : 4;
    options.types = Types::kF32;
  }
  SECTION("many ranks, cheap") {
    options.ranks = 96, options.steps = 1, options.cheap = true, options.collectives = 60;
  }
  const RecordedJob job = job_of(options);
  CHECK_FALSE(job.result.hangs);
  std::set<std::string> groups;
  for (const auto& [key, meeting] : meetings_of(job)) {
    const RecordedCall& first = *meeting.begin()->second;
    const bool transfer = first.op == "send" || first.op == "recv";
    REQUIRE(meeting.size() == (transfer ? 2 : first.event.group_size));
    for (const auto& [rank, call] : meeting) {
      CHECK(call->members == first.members);
      if (transfer) continue;
      CHECK(call->op == first.op);
      CHECK(call->scope == first.scope);
      CHECK(call->event.header.step == first.event.header.step);
    }
    check_meeting(meeting);
    groups.insert(first.group);
  }
  CHECK(groups.contains("c10d:world"));
  check_calls(job);
  check_replicas(job);
}

TEST_CASE("simulate: the same seed gives the same bytes, on one thread and on three",
          "[simulate]") {
  Options options;
  options.ranks = 8, options.steps = 2, options.stages = 2, options.seed = 5;
  options.origins = {{3, 1, simulate::FaultKind::kFlip}};
  options.threads = 1;
  const RecordedJob one = job_of(options);
  options.threads = 3;
  CHECK(one.files == job_of(options).files);
  options.seed = 6;
  CHECK(one.files != job_of(options).files);
}

TEST_CASE("simulate: groups and their members", "[simulate]") {
  const simulate::Layout layout = simulate::Layout::choose(24, 2, 3, 4);
  const simulate::Groups groups(layout);
  CHECK(groups.all().size() == 1 + 8 + 12 + 6);
  const auto group = [&](simulate::GroupKind kind, uint32_t rank) {
    return groups.all()[groups.of(kind, rank)];
  };
  using enum simulate::GroupKind;
  CHECK(group(kTensor, 7).members == std::vector<uint32_t>{6, 7, 8});
  CHECK(group(kData, 7).members == std::vector<uint32_t>{7, 10});
  CHECK(group(kPipeline, 7).members == std::vector<uint32_t>{1, 7, 13, 19});
  CHECK(groups.rank_in(kPipeline, 7) == 1);
  CHECK(group(kData, 7).name == group(kData, 10).name);
  CHECK(simulate::members_text({0, 4, 8, 9, 10}) == "0,4,8-10");
  CHECK(simulate::Layout::choose(10, 4, 0, 0).ranks == 0);
}

}  // namespace
}  // namespace convtrace::test
