#include <algorithm>

#include "tests/unit/tools/origin/job.h"

namespace convtrace::test {
namespace {

/// What DDP does when it is made: it compares the numbers and the shapes of parameters.
void wrap(Job& job) {
  for (RankEvents& rank : job)
    for (const std::string op : {"broadcast", "all_gather"}) {
      CollectiveSpec call = call_of(job, rank.rank, op, op == "broadcast" ? 1 : 0, {}, {});
      call.group = "ddp";
      call.phase = Phase::kForward;
      call.dtype = format::DType::kI64;
      call.with_values = false;
      if (op == "broadcast") call.peer = 0;
      call.sent = {std::vector<float>(op == "broadcast" ? 9 : 1, 1.0F)};
      call.received = {std::vector<float>(op == "broadcast" ? 9 : job.size(), 1.0F)};
      rank.events.insert(rank.events.begin(), {.step = 0, .call = call});
    }
}

/// Ranks that begin alike and train by themselves.
Job apart(uint32_t steps, uint32_t averaged = 99) {
  Job job = empty_job(3);
  for (RankEvents& rank : job) {
    rank.add(0, {.scope = "fc", .slot = "param:weight", .values = noise(1, 32)});
    for (uint32_t step = 0; step < steps; ++step) {
      const uint64_t seed = 10 * step + (step == averaged ? 1000 : 1000 + rank.rank);
      rank.add(step, {.scope = "fc",
                      .slot = "grad:weight",
                      .phase = Phase::kOptimizer,
                      .values = noise(5000 + 10 * step + rank.rank, 32)});
      rank.add(step, {.scope = "fc",
                      .slot = "param:weight",
                      .phase = Phase::kOptimizer,
                      .values = noise(seed, 32)});
    }
  }
  return job;
}

TEST_CASE("origin not-reduced: a model in DDP whose gradients are never summed",
          "[origin][replicas]") {
  Job job = apart(4);
  CHECK(told(origins_of(job)) == List{});
  CHECK(has_line(origins_of(job).notes, "taken for training of their own"));
  wrap(job);
  const OriginResult result = origins_of(job);
  REQUIRE(told(result) == List{"not-reduced ?@0 fc grad:weight"});
  CHECK(contains(result.origins[0].text, "though DDP holds their model"));
  CHECK(contains(result.origins[0].next, "calls of DDP's .module (what it holds)"));
  CHECK(result.origins[0].suspects == std::vector<uint32_t>{0, 1, 2});
  // Weights that are averaged every few steps.
  Job local = apart(4, 2);
  wrap(local);
  const OriginResult averaged = origins_of(local);
  CHECK(told(averaged) == List{});
  CHECK(has_line(averaged.notes, "are equal again later"));
}

/// Ranks that reduce their gradients until step 3, and then step by themselves.
Job ending(uint32_t averaged = 99, bool still_summed = false) {
  Job job = empty_job(3);
  for (RankEvents& rank : job) {
    rank.add(0, {.scope = "fc", .slot = "param:weight", .values = noise(1, 32)});
    for (uint32_t step = 0; step < 6; ++step) {
      const uint64_t own = step < 3 ? 0 : rank.rank;
      if (step < 3 || still_summed)
        rank.add(step, call_of(job, rank.rank, "all_reduce", step, noise(900 + step, 32),
                               noise(900 + step, 32)));
      rank.add(step, {.scope = "fc",
                      .slot = "grad:weight",
                      .phase = Phase::kOptimizer,
                      .values = noise(5000 + 10 * step + own, 32)});
      rank.add(step, {.scope = "fc",
                      .slot = "param:weight",
                      .phase = Phase::kOptimizer,
                      .values = noise(1000 + 10 * step + (step == averaged ? 0 : own), 32)});
    }
  }
  return job;
}

TEST_CASE("origin not-reduced: a reduction that ends", "[origin][replicas]") {
  const OriginResult result = origins_of(ending());
  REQUIRE(told(result) == List{"not-reduced ?@3 fc grad:weight"});
  CHECK(contains(result.origins[0].text, "Gradients are not reduced from step 3 on"));
  CHECK(has_line(result.origins[0].evidence, "sums over ranks in a step: 1 before, 0 now"));
  CHECK(contains(result.origins[0].next, "calls of DDP's .module"));
  // Local training that begins later.
  const OriginResult averaged = origins_of(ending(5));
  CHECK(told(averaged) == List{});
  CHECK(has_line(averaged.notes, "are equal again later"));
  // What is reduced is not what the optimizer takes.
  const OriginResult summed = origins_of(ending(99, true));
  CHECK(has_line(told(summed), "parted ?@3 fc param:weight"));
}

/// A training with a buffer in fc1.
Job with_buffer(const std::function<std::vector<float>(uint32_t, uint32_t)>& buffer,
                bool broadcast = false) {
  Job job = trained({.ranks = 4, .steps = 6});
  for (RankEvents& rank : job)
    for (uint32_t step = 0; step < 6; ++step) {
      if (broadcast) {
        CollectiveSpec call = call_of(job, rank.rank, "broadcast", step, {}, {});
        call.group = "buffers";
        call.peer = 0;
        call.phase = Phase::kForward;
        rank.add(step, call);
      }
      rank.add(step, {.scope = "fc1", .slot = "buffer:mean", .values = buffer(rank.rank, step)});
    }
  std::ranges::for_each(
      job, [](RankEvents& rank) { std::ranges::stable_sort(rank.events, {}, &Event::step); });
  return job;
}

TEST_CASE("origin: buffers that nobody broadcasts are a note", "[origin][replicas]") {
  const auto own = [](uint32_t rank, uint32_t step) { return noise(100 * step + rank, 8); };
  const OriginResult result = origins_of(with_buffer(own));
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes,
                 "buffer fc1.mean is not the same on ranks 0-3 from step 0 on, though their "
                 "parameters are"));
  CHECK_FALSE(has_line(origins_of(with_buffer(own, true)).notes, "fc1.mean"));
  const auto alike = [](uint32_t, uint32_t step) { return noise(step, 8); };
  CHECK_FALSE(has_line(origins_of(with_buffer(alike)).notes, "fc1.mean"));
}

TEST_CASE("origin: a buffer that begins unlike and is never written is a note",
          "[origin][replicas]") {
  const auto begun = [](bool unlike, bool broadcast) {
    Job job = with_buffer([](uint32_t, uint32_t step) { return noise(step, 8); }, broadcast);
    for (RankEvents& rank : job) {
      rank.add(0, {.scope = "fc1",
                   .slot = "buffer_initial:table",
                   .values = noise(unlike && rank.rank == 3 ? 7 : 8, 8)});
      std::ranges::stable_sort(rank.events, {}, &Event::step);
    }
    return origins_of(job).notes;
  };
  CHECK(has_line(begun(true, false),
                 "buffer fc1.table is not the same on ranks 0-3 from step 0 on, though their "
                 "parameters are"));
  CHECK_FALSE(has_line(begun(true, true), "fc1.table"));
  CHECK_FALSE(has_line(begun(false, false), "fc1.table"));
}

TEST_CASE("origin parted: a buffer that was equal", "[origin][replicas]") {
  const OriginResult result = origins_of(with_buffer([](uint32_t rank, uint32_t step) {
    return noise(rank == 2 && step > 3 ? 100 + step : step, 8);
  }));
  CHECK(told(result) == List{"parted 2@4 fc1 buffer:mean"});
}

TEST_CASE("origin: replicas with equal data are a note", "[origin][replicas]") {
  const auto training = [](bool same) {
    return trained({.ranks = 4, .steps = 5, .change = [same](Moment& at) {
                      if (same && at.name == "input" && at.rank == 3)
                        at.values = noise(1000 + at.step * 100 + 1, at.values.size());
                    }});
  };
  CHECK(has_line(origins_of(training(true)).notes,
                 "ranks 1, 3 have equal parameters and equal data in all 5 steps"));
  CHECK_FALSE(has_line(origins_of(training(false)).notes, "equal data"));
}

}  // namespace
}  // namespace convtrace::test
