#include <algorithm>

#include "tests/unit/tools/origin/job.h"

namespace convtrace::test {
namespace {

std::vector<float> nothing(uint32_t) { return {}; }

TEST_CASE("origin wrong-content: broadcast", "[origin][content]") {
  const auto job_with = [](uint32_t wrong_begin, uint32_t wrong_end, bool root_recorded) {
    Job job = empty_job(4);
    const std::vector<float> right = noise(1, 30);
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const bool wrong = wrong_begin <= rank && rank < wrong_end;
      CollectiveSpec call = call_of(job, rank, "broadcast", 0, {}, {});
      call.peer = 1;
      if (rank == 1) call.sent = {right};
      call.with_values = rank != 1 || root_recorded;
      if (rank != 1) call.received = {wrong ? noise(2, 30) : right};
      job[rank].add(0, call);
    }
    return job;
  };
  CHECK(told(origins_of(job_with(0, 0, true))) == List{});
  CHECK(told(origins_of(job_with(2, 3, true))) == List{"wrong-content 2@0 - received:0"});
  // All but the root have another value than the root: it changed there.
  const OriginResult root = origins_of(job_with(0, 4, true));
  REQUIRE(told(root) == List{"wrong-content 1@0 - received:0"});
  CHECK(root.origins[0].ranks == std::vector<uint32_t>{0, 2, 3});
  CHECK(told(origins_of(job_with(2, 3, false))) == List{"unequal 2@0 - received:0"});
}

TEST_CASE("origin wrong-content: all_gather into a list and into one tensor", "[origin][content]") {
  for (const bool list : {true, false}) {
    for (const uint32_t faulty : {9U, 0U, 2U}) {
      Job job = empty_job(3);
      for (uint32_t rank = 0; rank < 3; ++rank) {
        CollectiveSpec call = call_of(job, rank, "all_gather", 0, noise(rank, 20), {});
        call.hashed_as_stored = true;
        std::vector<float> whole;
        for (uint32_t from = 0; from < 3; ++from) {
          std::vector<float> part = noise(from, 20);
          if (rank == faulty && from == 1) part[3] += 1;
          whole.insert(whole.end(), part.begin(), part.end());
          if (list) call.received.push_back(part);
        }
        if (!list) call.received = {whole};
        job[rank].add(0, call);
      }
      const List found = told(origins_of(job));
      if (faulty == 9) {
        CHECK(found == List{});
      } else {
        REQUIRE(!found.empty());
        CHECK(contains(found[0], "wrong-content " + std::to_string(faulty) + "@0"));
      }
    }
  }
}

TEST_CASE("origin: all_gather of unlike sizes, and of objects", "[origin][content]") {
  Job job = empty_job(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    CollectiveSpec uneven = call_of(job, rank, "all_gather", 0, noise(rank, 5 + rank), {});
    for (uint32_t from = 0; from < 3; ++from) uneven.received.push_back(noise(from, 5 + from));
    job[rank].add(0, uneven);
    CollectiveSpec padded = call_of(job, rank, "all_gather", 1, noise(rank, 5 + rank), {});
    for (uint32_t from = 0; from < 3; ++from) padded.received.push_back(noise(from, 8));
    job[rank].add(0, padded);
  }
  CHECK(told(origins_of(job)) == List{});
}

TEST_CASE("origin wrong-content: gather, scatter and all_to_all", "[origin][content]") {
  for (const bool faulty : {false, true}) {
    Job job = empty_job(3);
    const auto part = [](uint32_t from, uint32_t to) { return noise(10 * from + to, 17); };
    for (uint32_t rank = 0; rank < 3; ++rank) {
      CollectiveSpec gather = call_of(job, rank, "gather", 0, part(rank, 0), {});
      gather.peer = 0;
      CollectiveSpec scatter = call_of(job, rank, "scatter", 1, {}, part(2, rank));
      scatter.peer = 2;
      CollectiveSpec exchange = call_of(job, rank, "all_to_all", 2, {}, {});
      for (uint32_t other = 0; other < 3; ++other) {
        if (rank == 0) gather.received.push_back(part(other, 0));
        if (rank == 2) scatter.sent.push_back(part(2, other));
        exchange.sent.push_back(part(rank, other));
        exchange.received.push_back(part(other, rank));
      }
      if (faulty && rank == 0) gather.received[1][0] += 1;
      if (faulty && rank == 1) scatter.received[0][0] += 1;
      if (faulty && rank == 2) exchange.received[0][0] += 1;
      job[rank].add(0, gather).add(0, scatter).add(0, exchange);
    }
    const OriginResult result = origins_of(job);
    CHECK(result.origins.size() == (faulty ? 3 : 0));
    for (const Origin& origin : result.origins) CHECK(origin.kind == Kind::kWrongContent);
    if (faulty) CHECK(has_line(told(result), "wrong-content 1@0"));  // of scatter
  }
}

/// Rank 0 sends to rank 1, which sends to rank 2: a pipeline.
Job pipeline(uint32_t steps) {
  Job job = empty_job(3);
  for (uint32_t step = 0; step < steps; ++step)
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const auto transfer = [&](const char* op, uint32_t peer, uint32_t from) {
        CollectiveSpec call = call_of(job, rank, op, step, {}, {});
        call.peer = peer;
        auto& tensors = std::string(op) == "send" ? call.sent : call.received;
        tensors.push_back(noise(step * 10 + from, 33));
        job[rank].add(step, call);
      };
      if (rank != 0) transfer("recv", rank - 1, rank - 1);
      job[rank].add(step, {.scope = "stage", .values = noise(step * 10 + rank, 33)});
      if (rank != 2) transfer("send", rank + 1, rank);
    }
  return job;
}

TEST_CASE("origin: transfers of a pipeline", "[origin][content]") {
  const OriginResult clean = origins_of(pipeline(4));
  CHECK(told(clean) == List{});
  CHECK(clean.transfers == 8);
  CHECK(clean.joined == 8);
  Job job = pipeline(4);
  job[2].call(2, "recv").received[0][0] += 1;
  const OriginResult wrong = origins_of(job);
  REQUIRE(told(wrong) == List{"wrong-content ?@2 - received:0"});
  CHECK(wrong.origins[0].suspects == std::vector<uint32_t>{1, 2});
}

TEST_CASE("origin nan: along a pipeline, and not against it", "[origin][nan]") {
  Job job = pipeline(3);
  job[1].value(1, "output:0", "stage").values[0] = kNan;
  job[1].call(1, "send").sent[0][0] = kNan;
  job[2].call(1, "recv").received[0][0] = kNan;
  job[2].value(1, "output:0", "stage").values[0] = kNan;
  const OriginResult result = origins_of(job);
  REQUIRE(told(result) == List{"nan 1@1 stage output:0"});
  CHECK(result.origins[0].ranks == std::vector<uint32_t>{2});
  REQUIRE(result.origins[0].through);
  CHECK(result.origins[0].through->op == "send");
}

TEST_CASE("origin: a value that is received after the next step began", "[origin]") {
  Job job = empty_job(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    CollectiveSpec call = call_of(job, rank, "all_reduce", 0, noise(rank, 20), {}, "sum");
    call.later = 20;
    job[rank].add(0, call);
    job[rank].add(1, {.scope = "fc", .values = noise(5, 20)});
    StatsSpec late{.scope = {},
                   .slot = "received:0",
                   .phase = Phase::kBackward,
                   .values = sum_of({noise(0, 20), noise(1, 20)})};
    if (rank == 1) late.values[2] += 1;
    late.collective = 1;
    job[rank].add(0, late);
    job[rank].add(1, {.scope = "fc", .values = noise(6, 20)});
  }
  for (const uint64_t events : {uint64_t{1}, uint64_t{1000}}) {
    const OriginResult result = origins_of(job, events);
    REQUIRE(result.origins.size() == 1);
    CHECK(result.origins[0].kind == Kind::kUnequal);
  }
}

TEST_CASE("origin mismatch: another operation, root, type or count", "[origin][mismatch]") {
  for (const std::string what : {"op", "root", "dtype", "count", "reduction"}) {
    Job job = empty_job(4);
    for (uint64_t number = 0; number < 5; ++number)
      add_to_all(
          job, 0, what == "root" ? "broadcast" : "all_reduce", number,
          [number](uint32_t) { return std::vector<float>(24 + number, 1.0F); },
          [number](uint32_t) { return std::vector<float>(24 + number, 4.0F); },
          what == "root" ? "" : "sum");
    if (what == "root")
      for (RankEvents& rank : job)
        for (size_t i = 0; i < 5; ++i) {
          rank.call(0, "broadcast", i).peer = 0;
          rank.call(0, "broadcast", i).sent.clear();
        }
    CollectiveSpec& call = job[2].call(0, what == "root" ? "broadcast" : "all_reduce", 1);
    if (what == "op") call.op = "all_gather";
    if (what == "root") call.peer = 3;
    if (what == "dtype") call.dtype = format::DType::kBF16;
    if (what == "count") call.sent[0].push_back(1);
    if (what == "reduction") call.reduction = "max";
    INFO(what);
    const OriginResult result = origins_of(job);
    REQUIRE(result.origins.size() == 1);
    CHECK(result.origins[0].kind == Kind::kMismatch);
    CHECK(result.origins[0].rank == 2U);
    CHECK(contains(result.origins[0].text, "where the other members called"));
  }
}

/// Collectives of unlike sizes, by which a shift shows.
Job numbered(uint32_t ranks, uint64_t calls) {
  Job job = empty_job(ranks);
  for (uint64_t number = 0; number < calls; ++number)
    add_to_all(
        job, static_cast<uint32_t>(number / 4), "all_reduce", number,
        [number](uint32_t) { return std::vector<float>(20 + number % 5, 1.0F); },
        [number, ranks](uint32_t) {
          return std::vector<float>(20 + number % 5, static_cast<float>(ranks));
        },
        "sum");
  return job;
}

TEST_CASE("origin mismatch: a call that one rank left out", "[origin][mismatch]") {
  CHECK(told(origins_of(numbered(4, 12))) == List{});
  Job job = numbered(4, 12);
  job[1].erase_call(1, "all_reduce", 2);
  const OriginResult result = origins_of(job);
  REQUIRE(told(result) == List{"mismatch 1@1 - "});
  CHECK(contains(result.origins[0].text,
                 "Rank 1 left out all_reduce (sum) of 21 f32 elements, number 6 of group world"));
  Job extra = numbered(4, 12);
  CollectiveSpec more = extra[3].call(1, "all_reduce", 1);
  more.sent[0].resize(99, 1);
  more.received[0].resize(99, 4);
  const auto place = std::ranges::find_if(
      extra[3].events, [](const Event& event) { return event.call && event.call->number == 6; });
  more.number = 6;
  for (auto event = place; event != extra[3].events.end(); ++event) ++event->call->number;
  extra[3].events.insert(place, {.step = 1, .call = more});
  const OriginResult longer = origins_of(extra);
  REQUIRE(told(longer) == List{"mismatch 3@1 - "});
  CHECK(contains(longer.origins[0].text, "which no other member calls"));
}

TEST_CASE("origin late: a rank that ends before others", "[origin][late]") {
  for (const bool closed : {true, false}) {
    Job job = trained({.ranks = 4, .steps = 5});
    job[2].end_before(3, "all_reduce", 1);
    for (RankEvents& rank : job) {
      rank.closed = closed;
      if (rank.rank == 2) continue;
      CollectiveSpec& call = rank.call(3, "all_reduce", 1);
      call.received.clear();
      rank.end_before(4, "all_reduce");
      rank.events.erase(
          std::find_if(rank.events.begin(), rank.events.end(),
                       [&](const Event& event) { return event.call && event.call->number == 7; }) +
              1,
          rank.events.end());
    }
    const OriginResult result = origins_of(job);
    REQUIRE(told(result) == List{"late 2@3 fc1 "});
    CHECK(contains(result.origins[0].text, "Rank 2 never came to all_reduce number 7"));
    CHECK(result.origins[0].ranks == std::vector<uint32_t>{0, 1, 3});
    CHECK(result.incomplete.size() == (closed ? 0 : 4));
  }
}

TEST_CASE("origin late: a trace that was cut is no late rank", "[origin][late]") {
  Job job = trained({.ranks = 4, .steps = 5});
  job[2].end_before(3, "all_reduce", 1);
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "the traces of rank 2 end before others"));
}

TEST_CASE("origin: errors that single ranks recorded are a note", "[origin]") {
  Job job = trained({.ranks = 2, .steps = 3});
  CHECK_FALSE(has_line(origins_of(job).notes, "of single ranks"));
  job[1].events.push_back({.step = 2, .finding = FindingSpec{.level = format::Level::kError}});
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "the traces have 1 error of single ranks"));
}

TEST_CASE("origin: ranks without a trace are not known", "[origin]") {
  Job job = trained({.ranks = 4, .steps = 3});
  job.erase(job.begin() + 1);
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "rank 1 took part in collectives and has no trace"));
  CHECK(result.joined == 0);
}

/// Two groups of all ranks; `swapped` calls that of b before that of a.
Job two_groups(uint32_t swapped, bool received) {
  Job job = empty_job(3);
  for (uint32_t step = 0; step < 3; ++step)
    for (uint32_t rank = 0; rank < 3; ++rank)
      for (const int turn : {0, 1}) {
        const bool first = (turn == 0) != (step == 1 && rank == swapped);
        CollectiveSpec call = call_of(job, rank, "all_reduce", step, noise(rank, 20), {}, "sum");
        call.group = first ? "a" : "b";
        if (received || step == 0)
          call.received = {sum_of({noise(0, 20), noise(1, 20), noise(2, 20)})};
        if (received || step < 2) job[rank].add(step, call);
      }
  return job;
}

TEST_CASE("origin mismatch: two groups in another order", "[origin][mismatch]") {
  CHECK(told(origins_of(two_groups(9, true))) == List{});
  const OriginResult stuck = origins_of(two_groups(1, false));
  REQUIRE(stuck.origins.size() == 1);
  CHECK(stuck.origins[0].kind == Kind::kMismatch);
  CHECK(contains(stuck.origins[0].text, "Ranks wait for each other"));
  // They went on, as with calls that do not wait.
  CHECK(told(origins_of(two_groups(1, true))) == List{});
  CHECK(told(origins_of(two_groups(1, true), 1)) == List{});
}

/// Each step: two sums of group "tp" of equal sizes in unlike modules, then one of group "world".
Job in_modules(uint32_t ranks, uint32_t steps) {
  Job job = empty_job(ranks);
  for (uint32_t step = 0; step < steps; ++step)
    for (uint32_t rank = 0; rank < ranks; ++rank)
      for (const std::string module : {"a", "b", "c", "d"}) {
        std::vector<std::vector<float>> sent;
        for (uint32_t from = 0; from < ranks; ++from)
          sent.push_back(noise(step * 100 + static_cast<uint32_t>(module[0]) + 1000 * from, 20));
        const uint64_t place = static_cast<uint64_t>(module[0] - 'a');
        CollectiveSpec call =
            call_of(job, rank, "all_reduce", 3 * step + place, sent[rank], sum_of(sent), "sum");
        call.group = "tp";
        call.scope = module;
        if (module == "d") {
          call.group = "all";
          call.number = step;
        }
        job[rank].add(step, call);
      }
  return job;
}

TEST_CASE("origin mismatch: equal calls of unlike modules, exchanged or left out",
          "[origin][mismatch]") {
  for (const uint32_t ranks : {2U, 4U}) {
    CHECK(told(origins_of(in_modules(ranks, 3))) == List{});
    Job exchanged = in_modules(ranks, 3);
    std::swap(exchanged[1].call(1, "all_reduce", 0).scope,
              exchanged[1].call(1, "all_reduce", 1).scope);
    const OriginResult result = origins_of(exchanged);
    REQUIRE(told(result) == List{"mismatch 1@1 b "});
    CHECK(contains(result.origins[0].text, "unlike tensors are taken for one"));
    Job left_out = in_modules(ranks, 3);
    left_out[1].erase_call(1, "all_reduce", 1);
    const OriginResult shifted = origins_of(left_out);
    REQUIRE(told(shifted) == List{"mismatch 1@1 c "});
    CHECK(contains(shifted.origins[0].text, "Rank 1 left out all_reduce"));
    // Places that are no matter of order say nothing.
    Job other = in_modules(ranks, 3);
    other[1].call(1, "all_reduce", 1).scope = "elsewhere";
    CHECK(told(origins_of(other)) == List{});
  }
}

TEST_CASE("origin mismatch: ranks that wait for each other in two groups", "[origin][mismatch]") {
  for (const uint32_t ranks : {2U, 4U}) {
    Job job = in_modules(ranks, 3);
    for (RankEvents& rank : job) {
      // Rank 1 has left out the last call of tp and waits in that of all ranks.
      rank.end_before(2, "all_reduce", rank.rank == 1 ? 2 : 3);
      if (rank.rank == 1) {
        CollectiveSpec early = in_modules(ranks, 3)[1].call(2, "all_reduce", 3);
        rank.add(2, early);
      }
      for (Event& event : rank.events)
        if (event.call->number == (event.call->group == "tp" ? 8 : 2)) {
          event.call->later = 20;
          event.call->received.clear();
        }
      rank.closed = false;
    }
    const OriginResult result = origins_of(job);
    REQUIRE(told(result) == List{"mismatch 1@2 d "});
    CHECK(
        contains(result.origins[0].text, "a call was left out, or two were made in another order"));
    CHECK(has_line(result.origins[0].evidence,
                   "usually all_reduce number 8 of group tp comes first"));
  }
}

TEST_CASE("origin: barriers, groups of one and single ranks", "[origin]") {
  Job job = empty_job(2);
  add_to_all(job, 0, "barrier", 0, nothing, nothing);
  CollectiveSpec alone = call_of(job, 0, "all_reduce", 0, noise(1, 20), noise(1, 20), "sum");
  alone.group = "self";
  alone.members = "0";
  alone.group_size = 1;
  job[0].add(0, alone);
  CHECK(told(origins_of(job)) == List{});
  Job single = trained({.ranks = 1, .steps = 3});
  CHECK(told(origins_of(single)) == List{});
}

TEST_CASE("origin: the order of the files and the size of windows change nothing", "[origin]") {
  Job job = trained({.ranks = 4, .steps = 6, .change = [](Moment& at) {
                       if (at.is(2, 3, "fc1 output")) at.values[5] = kNan;
                     }});
  const OriginResult whole = origins_of(job);
  for (const uint64_t events : {uint64_t{1}, uint64_t{60}, uint64_t{200}}) {
    const OriginResult cut = origins_of(job, events);
    CHECK(told(cut) == told(whole));
    CHECK(cut.origins[0].ranks == whole.origins[0].ranks);
    CHECK(cut.cells == whole.cells);
  }
  std::ranges::reverse(job);
  CHECK(told(origins_of(job)) == told(whole));
  job.push_back(job[0]);  // a further trace of a rank
  const OriginResult twice = origins_of(job);
  CHECK(told(twice) == told(whole));
  CHECK(has_line(twice.notes, "is a further trace of rank 3"));
}

}  // namespace
}  // namespace convtrace::test
