#include <random>

#include "tests/unit/tools/origin/job.h"
#include "tools/origin/model/image.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::test {
namespace {

using Ranks = std::vector<uint32_t>;

TEST_CASE("origin: lists of members", "[origin][hostile]") {
  CHECK(origin::parse_ranks("0-3,8") == Ranks{0, 1, 2, 3, 8});
  CHECK(origin::parse_ranks("5") == Ranks{5});
  for (const char* text :
       {"", ",", "-", "a", "3-", "-3", "3-1", "1,,2", "0-4294967295", "0-9999999", "1,1", "0-3,2",
        "99999999999", "1 ,2", "0-1048575,2000000-3000000", "1-2-3"})
    CHECK(!origin::parse_ranks(text));
  CHECK(origin::ranks_text({8, 0, 1, 2, 3}) == "0-3, 8");
  CHECK(origin::ranks_text({4, 5}) == "4, 5");
  CHECK(origin::ranks_named({7}) == "rank 7");
  CHECK(origin::ranks_text({0, 2, 4, 6}, 2) == "0, 2 and 2 more");
}

TEST_CASE("origin: odd groups", "[origin][hostile]") {
  const auto with = [](const std::function<void(CollectiveSpec&, uint32_t)>& change) {
    Job job = trained({.ranks = 3, .steps = 4});
    for (RankEvents& rank : job)
      for (Event& event : rank.events)
        if (event.call) change(*event.call, rank.rank);
    return origins_of(job);
  };
  constexpr uint32_t kMost = 0xFFFFFFFF;
  const std::vector<std::function<void(CollectiveSpec&, uint32_t)>> changes = {
      [](CollectiveSpec& call, uint32_t) { call.group_size = 0; },
      [](CollectiveSpec& call, uint32_t) { call.group_size = kMost; },
      [](CollectiveSpec& call, uint32_t) { call.group_rank = kMost; },
      [](CollectiveSpec& call, uint32_t) { call.group_rank = 0; },
      [](CollectiveSpec& call, uint32_t) { call.peer = 77; },
      [](CollectiveSpec& call, uint32_t) { call.members = "garbage \x1b[31m"; },
      [](CollectiveSpec& call, uint32_t) { call.members = "0-1000000000"; },
      [](CollectiveSpec& call, uint32_t rank) { call.members = std::to_string(rank); },
      [](CollectiveSpec& call, uint32_t rank) { call.group = std::to_string(rank); },
      [](CollectiveSpec& call, uint32_t) { call.group = ""; },
      [](CollectiveSpec& call, uint32_t) { call.op = "no such op"; },
      [](CollectiveSpec& call, uint32_t) { call.number = 0; },
      [](CollectiveSpec& call, uint32_t) { call.number = UINT64_MAX; },
      [](CollectiveSpec& call, uint32_t) { call.number *= uint64_t{1} << 40; },
      [](CollectiveSpec& call, uint32_t) { call.id = 1; },
      [](CollectiveSpec& call, uint32_t) { call.id = 0; },
      [](CollectiveSpec& call, uint32_t) { call.id = 1000 - call.number; },
      [](CollectiveSpec& call, uint32_t) {
        call.members = "0-999999";
        call.group_size = 1'000'000;
      }};
  for (const auto& change : changes) {
    const OriginResult result = with(change);
    CHECK(result.origins.size() < 3);
    CHECK(result.ranks.size() == 3);
  }
}

TEST_CASE("origin: transfers of nobody", "[origin][hostile]") {
  Job job = empty_job(3);
  for (uint64_t number = 0; number < 4; ++number)
    for (uint32_t rank = 0; rank < 3; ++rank)
      for (const char* op : {"send", "recv"})
        for (const uint32_t peer : {0U, 2U, 17U, format::kNoPeer}) {
          CollectiveSpec call = call_of(job, rank, op, number, noise(rank, 4), noise(rank, 4));
          call.peer = peer;
          call.group = peer == format::kNoPeer ? "any" : "world";
          job[rank].add(0, call);
        }
  CHECK(origins_of(job).ranks.size() == 3);
}

TEST_CASE("origin: records that are lost", "[origin][hostile]") {
  // A call that is not in one trace has a number that no later call of the rank has.
  Job job = trained({.ranks = 3, .steps = 6});
  std::erase_if(job[1].events,
                [](const Event& event) { return event.call && event.call->number == 5; });
  for (const uint64_t events : {uint64_t{1}, uint64_t{1000}}) {
    const OriginResult result = origins_of(job, events);
    CHECK(told(result) == std::vector<std::string>{});
    CHECK(result.joined == 11);
  }
}

TEST_CASE("origin: random changes of a job", "[origin][hostile]") {
  std::mt19937 random(7);
  const auto any = [&](auto... values) {
    const std::vector<uint64_t> all{static_cast<uint64_t>(values)...};
    return all[random() % all.size()];
  };
  for (int turn = 0; turn < 60; ++turn) {
    Job job = trained({.ranks = 3, .steps = 4});
    for (int change = 0; change < 12; ++change) {
      RankEvents& rank = job[random() % 3];
      Event& event = rank.events[random() % rank.events.size()];
      if (event.value) {
        event.value->collective = any(0, 1, 2, 5, 1000, UINT64_MAX);
        event.value->slot =
            random() % 2 == 0 ? "sent:" + std::to_string(any(0, 1, 70000)) : "received:x";
        continue;
      }
      CollectiveSpec& call = *event.call;
      constexpr const char* kOps[] = {
          "send",           "recv",       "broadcast",  "scatter", "gather", "reduce",
          "reduce_scatter", "all_gather", "all_to_all", "barrier", "?"};
      call.op = kOps[random() % std::size(kOps)];
      call.peer = static_cast<uint32_t>(any(0, 1, 2, 3, 0xFFFFFFFE, 0xFFFFFFFF));
      call.number = any(0, 1, 2, 3, 4, 5, 6, 7, 1000, UINT64_MAX);
      call.group_rank = static_cast<uint32_t>(any(0, 1, 2, 3, 0xFFFFFFFF));
      if (random() % 3 == 0) call.sent.clear();
      if (random() % 3 == 0) call.received.push_back(noise(random(), random() % 30));
      if (random() % 4 == 0) call.dtype = static_cast<format::DType>(random() % 20);
      if (random() % 5 == 0)
        event.step = static_cast<uint32_t>(any(0, 9, 4000000000U, format::kNoStep));
    }
    const OriginResult result = origins_of(job, any(1, 50, 1000000));
    CHECK(result.ranks.size() == 3);
  }
}

TEST_CASE("origin: units in the last place of types", "[origin]") {
  CHECK(origin::roundoff_of_sums(format::DType::kBF16) == 0x1p-8);
  CHECK(origin::roundoff_of_sums(format::DType::kI32) == 0);
}

}  // namespace
}  // namespace convtrace::test
