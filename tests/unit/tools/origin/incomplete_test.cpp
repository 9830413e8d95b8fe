#include <algorithm>

#include "tests/unit/tools/origin/job.h"

namespace convtrace::test {
namespace {

/// A training at whose end all ranks meet in a barrier, of another group than the sums.
Job with_barrier(const Training& training) {
  Job job = trained(training);
  for (RankEvents& rank : job) {
    CollectiveSpec barrier = call_of(job, rank.rank, "barrier", 0, {}, {});
    barrier.group = "end";
    rank.add(training.steps - 1, barrier);
  }
  return job;
}

void cut(RankEvents& rank, size_t share, size_t of) {
  rank.events.resize(rank.events.size() * share / of);
  rank.closed = false;
}

TEST_CASE("origin: a trace that was cut says nothing of what its rank did", "[origin][late]") {
  for (const size_t share : {1U, 3U, 5U, 8U, 9U}) {
    for (const uint64_t events : {uint64_t{1}, uint64_t{60}, uint64_t{100'000}}) {
      Job job = with_barrier({.ranks = 4, .steps = 12});
      cut(job[2], share, 10);
      const OriginResult result = origins_of(job, events);
      INFO(share << " of 10, " << events);
      CHECK(told(result) == List{});
      CHECK(has_line(result.notes, "the traces of rank 2 end before others"));
    }
  }
}

TEST_CASE("origin: at a last barrier an unclosed trace may have been cut", "[origin][late]") {
  for (const bool closed : {true, false}) {
    Job job = with_barrier({.ranks = 4, .steps = 3});
    job[2].events.pop_back();
    job[2].closed = false;
    // The others have left it in order, or were ended there.
    for (RankEvents& rank : job)
      if (rank.rank != 2) rank.closed = closed;
    CHECK(told(origins_of(job)) == (closed ? List{} : List{"late 2@2 - "}));
  }
}

TEST_CASE("origin late: a rank that was killed is told beside a trace that was cut",
          "[origin][late]") {
  Job job = trained({.ranks = 5, .steps = 5});
  job[1].end_before(3, "all_reduce", 1);
  cut(job[4], 3, 10);
  for (RankEvents& rank : job) {
    rank.closed = false;
    if (rank.rank == 1 || rank.rank == 4) continue;
    rank.call(3, "all_reduce", 1).received.clear();
    const auto last = std::ranges::find_if(
        rank.events, [](const Event& event) { return event.call && event.call->number == 7; });
    rank.events.erase(last + 1, rank.events.end());
  }
  const OriginResult result = origins_of(job);
  REQUIRE(told(result) == List{"late 1@3 fc1 "});
  CHECK(has_line(result.notes, "the traces of rank 4 end before others"));
}

TEST_CASE("origin nan: is found beside a trace that was cut", "[origin][nan]") {
  const auto plant = [](Moment& at) {
    if (at.is(3, 8, "fc1 output")) at.values[0] = kNan;
  };
  for (const uint64_t events : {uint64_t{60}, uint64_t{100'000}}) {
    Job job = with_barrier({.ranks = 4, .steps = 12, .change = plant});
    cut(job[2], 4, 10);
    const OriginResult result = origins_of(job, events);
    REQUIRE(told(result) == List{"nan 3@8 fc1 output:0"});
    CHECK(result.origins[0].ranks == std::vector<uint32_t>{0, 1});
  }
}

/// Two pairs of ranks that sum, then all: what waits for the ended trace comes before what waits for
/// who waits for it.
TEST_CASE("origin nan: the order of groups is kept behind an ended trace", "[origin][nan]") {
  Job job = empty_job(4);
  for (uint32_t step = 0; step < 4; ++step)
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const uint32_t pair = rank / 2;
      const bool bad = step == 2;
      const auto sum = [&](const std::string& group, const std::string& members, uint32_t place,
                           uint32_t size, bool sends_nan, bool gets_nan) {
        CollectiveSpec call = call_of(job, rank, "all_reduce", step, {}, {}, "sum");
        call.group = group;
        call.members = members;
        call.group_rank = place;
        call.group_size = size;
        call.sent = {std::vector<float>(20, sends_nan ? kNan : 1.0F)};
        call.received = {std::vector<float>(20, gets_nan ? kNan : static_cast<float>(size))};
        return call;
      };
      if (step == 3 && rank == 3) continue;
      job[rank].add(
          step, {.scope = "fc", .values = std::vector<float>(4, bad && rank == 0 ? kNan : 1.0F)});
      const std::string pair_name = "pair" + std::to_string(pair);
      job[rank].add(step, sum(pair_name, pair == 0 ? "0-1" : "2-3", rank % 2, 2, bad && rank == 0,
                              bad && pair == 0));
      job[rank].add(step, sum("world", "0-3", rank, 4, bad && pair == 0, bad));
    }
  job[3].events.resize(2);
  job[3].closed = false;
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{"nan 0@2 fc output:0"});
}

TEST_CASE("origin: ranks that wait in a circle of three groups are a note", "[origin][late]") {
  Job job = empty_job(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    CollectiveSpec call = call_of(job, rank, "all_reduce", 0, noise(rank, 20), {}, "sum");
    const uint32_t next = (rank + 1) % 3;
    call.group = "pair" + std::to_string(rank);
    call.members =
        std::to_string(std::min(rank, next)) + "," + std::to_string(std::max(rank, next));
    call.group_rank = rank < next ? 0 : 1;
    call.group_size = 2;
    call.later = 20;
    job[rank].add(0, call);
    job[rank].closed = false;
  }
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "rank 0 waits in all_reduce number 0 of group pair0 for rank 1"));
  CHECK(has_line(result.notes, "rank 2 waits in all_reduce number 0 of group pair2 for rank 0"));
}

/// Rank 0 sends two messages a step, which rank 1 receives in the other order.
/// @param tag  what is recorded of that of the first and the second message.
Job crossed(const std::function<uint64_t(uint32_t)>& tag) {
  Job job = empty_job(2);
  const bool apart = tag(0) != tag(1);
  for (uint32_t step = 0; step < 3; ++step)
    for (uint32_t rank = 0; rank < 2; ++rank)
      for (uint32_t turn = 0; turn < 2; ++turn) {
        const uint32_t message = rank == 0 ? turn : 1 - turn;
        CollectiveSpec call =
            call_of(job, rank, rank == 0 ? "send" : "recv", apart ? step : 2 * step + turn, {}, {});
        call.tag = tag(message);
        call.peer = 1 - rank;
        auto& tensors = rank == 0 ? call.sent : call.received;
        tensors = {noise(10 * step + message, 20)};
        job[rank].add(step, call);
      }
  return job;
}

TEST_CASE("origin: transfers are joined by their tags", "[origin][content]") {
  Job job = crossed([](uint32_t message) { return 8 + message; });
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(result.joined == 6);
  CHECK_FALSE(has_line(result.notes, "in another order"));
  job[1].call(1, "recv", 0).received[0][3] += 1;
  const OriginResult faulty = origins_of(job);
  REQUIRE(told(faulty) == List{"wrong-content ?@1 - received:0"});
  CHECK(contains(faulty.origins[0].text, "send number 1 of group world with tag 8 from rank 0"));
}

TEST_CASE("origin: another message of the same tag is wrong content", "[origin][content]") {
  const OriginResult result = origins_of(crossed([](uint32_t) { return 1; }));
  CHECK(told(result) == List{"wrong-content ?@0 - received:0"});
}

TEST_CASE("origin: messages that are received out of order are no wrong content without their tags",
          "[origin][content]") {
  Job job = crossed([](uint32_t) { return 0; });
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "in another order than they were sent"));
  job[1].call(0, "recv", 0).received[0][3] += 1;
  CHECK(told(origins_of(job)) == List{"wrong-content ?@0 - received:0"});
}

}  // namespace
}  // namespace convtrace::test
