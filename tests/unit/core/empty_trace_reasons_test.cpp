#include "interposer/core/control/empty_trace_reasons.h"

#include "interposer/core/control/process_rank.h"
#include "tests/support/catch.h"

namespace convtrace::engine {

TEST_CASE("absence: steps that were not asked for", "[engine]") {
  StepControl steps(settings::Mode::kStats, settings::StepSet::parse_steps("900").value());
  CHECK(empty_trace_reasons(steps.seen(), false).empty());  // there were no steps
  for (uint32_t step = 3; step < 13; ++step) steps.open(step);
  const auto reasons = empty_trace_reasons(steps.seen(), false);
  REQUIRE(reasons.size() == 1);
  CHECK(
      reasons[0].starts_with("CONVTRACE_STEPS 900 names none of the 10 steps that ran (3 to 12)"));
  steps.want(settings::Mode::kStats, settings::StepSet::parse_steps("12").value());
  CHECK(empty_trace_reasons(steps.seen(), false).empty());
}

TEST_CASE("absence: launches where there is no GPU", "[engine]") {
  StepControl steps(settings::Mode::kLaunches, {});
  steps.open(0);
  const auto reasons = empty_trace_reasons(steps.seen(), false);
  REQUIRE(reasons.size() == 1);
  CHECK(reasons[0].starts_with("mode launches records what a GPU runs"));
  CHECK(empty_trace_reasons(steps.seen(), true).empty());
}

TEST_CASE("process_rank: the program is heard where no launcher spoke", "[engine]") {
  ProcessRank rank(Rank{});
  CHECK_FALSE(rank.learn("distributed.rank", "3"));
  CHECK_FALSE(rank.learn("distributed.backend", "8"));
  CHECK_FALSE(rank.learn("distributed.rank", "x"));
  CHECK(rank.learn("distributed.world_size", "8"));
  CHECK(rank.get().rank == 3);
  CHECK(rank.get().world_size == 8);
  ProcessRank given({.rank = 1, .world_size = 2, .given = true});
  CHECK_FALSE(given.learn("distributed.rank", "0"));
  CHECK_FALSE(given.learn("distributed.world_size", "4"));
  CHECK(given.get().rank == 1);
  CHECK(given.get().world_size == 2);
}

}  // namespace convtrace::engine
