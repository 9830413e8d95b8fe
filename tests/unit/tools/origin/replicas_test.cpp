#include "tests/unit/tools/origin/job.h"

namespace convtrace::test {
namespace {

TEST_CASE("origin not-reduced: one gradient of each rank's own", "[origin][replicas]") {
  const OriginResult result = of({.ranks = 4, .steps = 4}, [](Moment& at) {
    if (at.step == 2 && at.name == "fc2 gradient") at.values[3] += static_cast<float>(at.rank);
  });
  REQUIRE(told(result) == List{"not-reduced ?@2 fc2 grad:weight"});
  CHECK(result.origins[0].suspects == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(contains(result.origins[0].text, "The gradient of fc2.weight was not reduced"));
  CHECK(has_line(result.origins[0].evidence, "it was equal on them in an earlier step"));
  CHECK(has_line(result.origins[0].evidence, "its parameter parts in the same step"));
  CHECK(contains(result.origins[0].next, "a call of DDP's .module in place of DDP"));
}

TEST_CASE("origin not-reduced: on one rank", "[origin][replicas]") {
  const OriginResult result = of({.ranks = 4, .steps = 4}, [](Moment& at) {
    if (at.is(1, 2, "fc2 gradient")) at.values[3] += 1;
  });
  REQUIRE(told(result) == List{"not-reduced 1@2 fc2 grad:weight"});
}

TEST_CASE("origin written: a gradient that one rank changed before it was reduced",
          "[origin][replicas]") {
  // By step and rank the writes to the gradient of fc2.
  const auto told_of = [](const std::vector<std::vector<uint32_t>>& writes, bool of_all = false) {
    const auto ranks = static_cast<uint32_t>(writes[0].size());
    Job job = trained({.ranks = ranks, .steps = static_cast<uint32_t>(writes.size())});
    for (RankEvents& rank : job)
      for (uint32_t step = 0; step < writes.size(); ++step)
        for (const char* layer : {"fc1", "fc2"})
          if (of_all || layer == std::string("fc2"))
            rank.value(step, "grad:weight", layer).value.version = writes[step][rank.rank];
    return origins_of(job);
  };
  const OriginResult result = told_of({{1, 1}, {1, 1}, {1, 2}, {1, 2}});
  REQUIRE(told(result) == List{"written 1@2 fc2 grad:weight"});
  CHECK(contains(result.origins[0].text, "was written to more often on rank 1 than on the others"));
  CHECK(result.cells[1][1] == origin::CellState::kClean);
  CHECK(result.cells[1][3] ==
        origin::CellState::kOrigin);  // to the end, not in its first step alone
  CHECK(result.cells[0][3] == origin::CellState::kReceived);
  CHECK(has_line(result.origins[0].evidence, "writes to it: 2 on rank 1, 1 on the others"));
  CHECK(told(told_of({{1, 1, 1}, {1, 3, 1}, {1, 3, 1}})) == List{"written 1@1 fc2 grad:weight"});
  // A counter that goes on, with such a write in each step, and with one alone.
  CHECK(told(told_of({{1, 1}, {2, 2}, {3, 4}, {4, 6}})) == List{"written 1@2 fc2 grad:weight"});
  CHECK(told(told_of({{1, 1}, {2, 2}, {3, 4}, {4, 5}, {5, 6}})) == List{});
  // Always so, once, not to the end, on most ranks, in turn; and where all gradients are.
  CHECK(told(told_of({{1, 2}, {1, 2}, {1, 2}})) == List{});
  CHECK(told(told_of({{1, 1}, {1, 1}, {1, 2}})) == List{});
  CHECK(told(told_of({{1, 1}, {1, 2}, {1, 2}, {1, 1}})) == List{});
  CHECK(told(told_of({{1, 1, 1}, {1, 2, 2}, {1, 2, 2}})) == List{});
  CHECK(told(told_of({{1, 1}, {1, 2}, {2, 1}, {2, 1}, {2, 1}})) == List{});
  CHECK(told(told_of({{1, 1}, {1, 2}, {1, 2}}, true)) == List{});
}

TEST_CASE("origin: a gradient that is none yet is silent", "[origin][replicas]") {
  // A sharded optimizer leaves gradients unreduced on all ranks but one, and weights are equal.
  Job job = trained({.ranks = 3, .steps = 3});
  for (RankEvents& rank : job)
    for (uint32_t step = 0; step < 3; ++step)
      rank.value(step, "grad:weight", "fc2").values[0] += static_cast<float>(rank.rank);
  CHECK(told(origins_of(job)) == List{});
}

TEST_CASE("origin parted: a weight that one rank changed", "[origin][replicas]") {
  const OriginResult result = of({.ranks = 4, .steps = 5}, [](Moment& at) {
    if (at.is(3, 2, "fc1 param")) at.values[0] += 1;
  });
  REQUIRE(told(result) == List{"parted 3@2 fc1 param:weight"});
  CHECK(has_line(result.origins[0].evidence, "the gradients of this step are equal"));
  CHECK(result.origins[0].times == 1);
}

TEST_CASE("origin parted: an update that was not made", "[origin][replicas]") {
  std::vector<float> before;
  const OriginResult result = of({.ranks = 4, .steps = 5}, [&](Moment& at) {
    if (at.is(0, 2, "fc1 param")) before = at.values;
    if (at.is(0, 3, "fc1 param")) at.values = before;
  });
  REQUIRE(told(result) == List{"parted 0@3 fc1 param:weight"});
  CHECK(has_line(result.origins[0].evidence, "stale: it is that of step 2"));
  // Of two replicas the one that stood still is the one.
  const OriginResult two = of({.ranks = 2, .steps = 5}, [&](Moment& at) {
    if (at.is(1, 2, "fc1 param")) before = at.values;
    if (at.is(1, 3, "fc1 param")) at.values = before;
  });
  CHECK(told(two) == List{"parted 1@3 fc1 param:weight"});
}

TEST_CASE("origin parted: shards and training of one's own are silent", "[origin][replicas]") {
  CHECK(told(of({.ranks = 4, .steps = 4, .replicated = false}, {})) == List{});
  // Equal constants at the begin, as the weights of a sharded norm are.
  const Change constant = [](Moment& at) {
    if (at.name == "fc1 param" && at.step == 0) at.values[0] += static_cast<float>(at.rank);
  };
  Job job = trained({.ranks = 4, .steps = 1, .change = constant});
  for (RankEvents& rank : job) rank.value(0, "param:weight", "fc1").values.assign(64, 1);
  CHECK(told(origins_of(job)) == List{});
  // Every rank trains by itself from equal weights.
  Job local = trained({.ranks = 3, .steps = 3});
  for (RankEvents& rank : local)
    for (Event& event : rank.events)
      if (event.value && event.value->phase == Phase::kOptimizer)
        event.value->values[1] += static_cast<float>(rank.rank);
  // With gradients that they add up it is none of its own.
  const OriginResult summed = origins_of(local);
  CHECK(told(summed) == List{"parted ?@0 fc1 param:weight"});
  CHECK(has_line(summed.origins[0].evidence, "the ranks add up gradients"));
  for (RankEvents& rank : local)
    std::erase_if(rank.events, [](const Event& event) {
      return event.call || (event.value && event.value->collective != 0);
    });
  const OriginResult result = origins_of(local);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "training of their own"));
}

TEST_CASE("origin parted: equal losses, unlike gradients and no sum of them",
          "[origin][replicas]") {
  for (const bool same_loss : {true, false}) {
    Job job = trained({.ranks = 3, .steps = 2});
    for (RankEvents& rank : job) {
      std::erase_if(rank.events, [](const Event& event) {
        return event.call || (event.value && event.value->collective != 0);
      });
      for (Event& event : rank.events) {
        const bool own = event.value && (event.value->phase == Phase::kOptimizer ||
                                         event.value->slot == "grad:weight");
        if (own) event.value->values[1] += static_cast<float>(rank.rank);
      }
      rank.add(0, {.slot = "loss",
                   .phase = Phase::kLoss,
                   .values = {same_loss ? 1.5F : 1.5F + static_cast<float>(rank.rank)}});
    }
    const OriginResult result = origins_of(job);
    if (same_loss) {
      REQUIRE(told(result).front() == "parted ?@0 fc1 param:weight");
      CHECK(has_line(result.origins[0].evidence, "the ranks have equal losses"));
    } else {
      CHECK(told(result) == List{});
    }
  }
}

TEST_CASE("origin parted: buffers that were equal", "[origin][replicas]") {
  for (const bool faulty : {false, true}) {
    Job job = trained({.ranks = 3, .steps = 6});
    for (RankEvents& rank : job)
      for (uint32_t step = 0; step < 6; ++step) {
        const bool other = faulty && step == 4 && rank.rank == 2;
        rank.add(step, {.scope = "bn",
                        .slot = "buffer:counter",
                        .values = {static_cast<float>(step + (other ? 7 : 1))}});
        // Running statistics are each rank's own.
        rank.add(step,
                 {.scope = "bn", .slot = "buffer:mean", .values = noise(rank.rank + step, 8)});
      }
    CHECK(told(origins_of(job)) == (faulty ? List{"parted 2@4 bn buffer:counter"} : List{}));
  }
}

TEST_CASE("origin: a rank without a gradient, and evaluation", "[origin][replicas]") {
  Job job = trained({.ranks = 3, .steps = 3});
  std::erase_if(job[1].events, [](const Event& event) {
    return event.value && event.value->slot == "grad:weight" && event.value->scope == "fc2";
  });
  for (RankEvents& rank : job)
    rank.add(2, {.scope = "fc1",
                 .slot = "output:0",
                 .phase = Phase::kEvaluation,
                 .values = noise(rank.rank, 9)});
  CHECK(told(origins_of(job)) == List{});
}

/// Two sums of gradients a step; rank 1 sends `factor` times as much in steps [from, to).
Job sums(uint32_t ranks, uint32_t steps, float factor, uint32_t from, uint32_t to) {
  Job job = empty_job(ranks);
  for (uint32_t step = 0; step < steps; ++step)
    for (uint64_t call = 0; call < 2; ++call) {
      std::vector<std::vector<float>> sent;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        sent.push_back(noise(step * 1000 + call * 100 + rank, 400));
        if (rank == 1 && from <= step && step < to)
          for (float& value : sent.back()) value *= factor;
      }
      add_to_all(
          job, step, "all_reduce", 2 * step + call, [&](uint32_t rank) { return sent[rank]; },
          [&](uint32_t) { return sum_of(sent); }, "sum");
    }
  return job;
}

/// The same of ranks that begin with equal parameters.
Job replicas_of(Job job) {
  for (RankEvents& rank : job)
    rank.events.insert(
        rank.events.begin(),
        {.step = 0,
         .value = StatsSpec{.scope = "fc", .slot = "param:weight", .values = noise(1, 40)}});
  return job;
}

TEST_CASE("origin scale: a factor that comes and stays", "[origin][scale]") {
  const OriginResult result = origins_of(sums(4, 8, 4, 4, 8));
  REQUIRE(told(result) == List{"scale 1@4 - sent:0"});
  CHECK(contains(result.origins[0].text, "times what the other members send, which it was not in"));
  CHECK(contains(result.origins[0].text, "the first is all_reduce number 8 of group world"));
  CHECK(has_line(result.origins[0].evidence, "seen in 4 steps"));
  CHECK(result.origins[0].ranks == std::vector<uint32_t>{0, 2, 3});
  CHECK(told(origins_of(sums(4, 8, 1, 0, 0))) == List{});
  // One batch may have larger gradients.
  CHECK(told(origins_of(sums(4, 8, 4, 4, 5))) == List{});
  // In the last step: one factor for all calls.
  CHECK(told(origins_of(sums(4, 8, 4, 7, 8))) == List{"scale 1@7 - sent:0"});
  // A rank whose data have ended adds zeros.
  CHECK(told(origins_of(sums(4, 8, 0, 4, 8))) == List{});
  // Members of two, of which the norm of one alone has changed.
  CHECK(told(origins_of(sums(2, 8, 4, 4, 8))) == List{"scale 1@4 - sent:0"});
  CHECK(told(origins_of(sums(2, 8, 1, 0, 0))) == List{});
}

TEST_CASE("origin scale: from the first step on", "[origin][scale]") {
  // Parts of a sum that are no gradients of replicas have norms of their own.
  CHECK(told(origins_of(sums(4, 6, 5, 0, 6))) == List{});
  CHECK(told(origins_of(replicas_of(sums(4, 6, 5, 0, 6)))) == List{"scale 1@0 - sent:0"});
  // A batch may be divided unevenly.
  CHECK(told(origins_of(replicas_of(sums(4, 6, 2, 0, 6)))) == List{});
  // In forward passes norms of parts are each rank's own.
  Job forward = sums(4, 8, 4, 4, 8);
  for (RankEvents& rank : forward)
    for (Event& event : rank.events) {
      event.call->phase = Phase::kForward;
      event.call->scope = "attention";
    }
  CHECK(told(origins_of(forward)) == List{});
}

TEST_CASE("origin: several faults that do not depend on each other", "[origin]") {
  const OriginResult result = of({.ranks = 4, .steps = 6}, [](Moment& at) {
    if (at.is(3, 1, "fc1 param")) at.values[0] += 1;
    if (at.is(0, 2, "fc2 received")) at.values[0] += 1;
    if (at.is(2, 4, "fc1 output")) at.values[0] = kNan;
  });
  CHECK(told(result) ==
        List{"parted 3@1 fc1 param:weight", "unequal 0@2 fc2 received:0", "nan 2@4 fc1 output:0"});
}

/// In each step of the job the ranks clip their gradients: `only`, or all.
Job clipped(Job job, uint32_t steps, std::optional<uint32_t> only) {
  for (RankEvents& rank : job)
    for (uint32_t step = 0; step < steps; ++step)
      if (!only || rank.rank == *only)
        rank.add(step, {.slot = "grad_norm", .phase = Phase::kBackward, .values = {2}});
  return job;
}

TEST_CASE("origin: a rank that alone clips its gradients", "[origin][replicas][scale]") {
  const auto change = [](Moment& at) {
    if (at.is(3, 0, "fc1 param")) at.values[0] += 1;
  };
  const Job job = trained({.ranks = 4, .steps = 1, .change = change});
  const std::string said = "in this step gradients are clipped on rank 3, and on no other";
  const OriginResult parted = origins_of(clipped(job, 1, 3));
  REQUIRE(told(parted) == List{"parted 3@0 fc1 param:weight"});
  CHECK(has_line(parted.origins[0].evidence, said));
  for (const auto only : {std::optional<uint32_t>(1), std::optional<uint32_t>()}) {
    const OriginResult others = origins_of(clipped(job, 1, only));
    CHECK_FALSE(has_line(others.origins.at(0).evidence, "gradients are clipped"));
  }
  const Job summed = replicas_of(sums(4, 6, 5, 0, 6));
  const OriginResult scaled = origins_of(clipped(summed, 6, 1));
  REQUIRE(told(scaled) == List{"scale 1@0 - sent:0"});
  CHECK(
      has_line(scaled.origins[0].evidence, "it clips its gradients, and the other members never"));
  CHECK(contains(scaled.origins[0].next, "this rank alone clip"));
  const OriginResult all = origins_of(clipped(summed, 6, std::nullopt));
  CHECK_FALSE(has_line(all.origins.at(0).evidence, "clips"));
}

}  // namespace
}  // namespace convtrace::test
