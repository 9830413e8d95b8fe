#include "interposer/core/control/step_budget.h"

#include <functional>
#include <random>

#include "interposer/core/control/step_control.h"
#include "tests/support/catch.h"

namespace convtrace::engine {
namespace {

constexpr double kPlainNs = 1e6;

/// A program whose steps cost what the test says.
struct Run {
  double asked = 0.05;
  double extra = 0;             ///< of a step with values, by one without
  double spent = 0;             ///< calls of convtrace in any step, by one without convtrace
  std::vector<double> left{1};  ///< which parts of `extra` lengthen the step and those behind it
  std::function<double(uint32_t)> length = [](uint32_t) { return 1.0; };

  StepBudget budget{asked};
  double now_ns = 1e9, spent_ns = 0, plain_ns = 0;
  std::vector<double> due = std::vector<double>(8);
  uint32_t next = 0;

  /// @return how much longer the steps took than without convtrace.
  double go(uint32_t steps) {
    for (const uint32_t end = next + steps; next < end; ++next) {
      (void)budget.open(next, static_cast<uint64_t>(now_ns), static_cast<uint64_t>(spent_ns));
      const double plain = kPlainNs * length(next);
      if (budget.steps().contains(next))
        for (size_t i = 0; i < left.size(); ++i) due[i] += extra * left[i] * plain;
      now_ns += plain * (1 + spent) + due.front();
      spent_ns += plain * spent;
      plain_ns += plain;
      std::shift_left(due.begin(), due.end(), 1);
      due.back() = 0;
    }
    return (now_ns - 1e9) / plain_ns - 1;
  }
  [[nodiscard]] std::string steps() const { return budget.steps().steps_text(); }
  [[nodiscard]] bool says(const std::string& part) const {
    return budget.text().find(part) != std::string::npos;
  }
};

}  // namespace

TEST_CASE("step_budget: the least number of steps that keeps to what was asked", "[engine]") {
  struct Case {
    double extra;
    std::string steps;
  };
  const Case cases[] = {{0, "0-24,every=5|25-"},
                        {0.049, "0-24,every=5|25-"},
                        {0.051, "0-24,every=5|26-,every=2"},
                        {0.2, "0-24,every=5|25-,every=5"},
                        {0.45, "0-24,every=5|50-,every=10"},
                        {0.9, "0-24,every=5|100-,every=20"},
                        {2.4, "0-24,every=5|250-,every=50"},
                        {4.9, "0-24,every=5|500-,every=100"},
                        {9, "0-24,every=5|500-,every=100"}};
  for (const Case& c : cases) {
    CAPTURE(c.extra);
    Run run{.extra = c.extra};
    (void)run.go(24);
    CHECK(run.steps() == "all,every=5");
    CHECK(run.says("5% asked; not decided: that takes 25 steps or more"));
    (void)run.go(2);
    CHECK(run.steps() == c.steps);
    CHECK(run.says("out of reach") == (c.extra > 5));
    // Steps that get longer later change nothing.
    run.extra = 40;
    (void)run.go(1000);
    CHECK(run.steps() == c.steps);
  }
}

TEST_CASE("step_budget: what measuring has taken is paid back", "[engine]") {
  for (const double extra : {0.04, 0.2, 0.45, 0.9, 1.4}) {
    CAPTURE(extra);
    Run run{.extra = extra};
    CHECK(run.go(200) < 0.06);
    CHECK(run.go(2000) < 0.0505);
  }
}

TEST_CASE("step_budget: costs that come in the two steps behind one with values count",
          "[engine]") {
  for (const std::vector<double>& left :
       {std::vector<double>{0.3, 0.7}, {0, 0.5, 0.5}, {0, 0, 1}}) {
    Run run{.extra = 0.45, .left = left};
    (void)run.go(26);
    CHECK(run.steps() == "0-24,every=5|50-,every=10");
  }
}

TEST_CASE("step_budget: steps that differ in length", "[engine]") {
  const auto alternating = [](uint32_t step) { return step % 2 == 0 ? 1.0 : 3.0; };
  const auto growing = [](uint32_t step) { return 1 + step * 0.02; };
  const auto with_pauses = [](uint32_t step) { return step % 11 == 7 ? 30.0 : 1.0; };
  for (const auto& length :
       {std::function<double(uint32_t)>(alternating), std::function<double(uint32_t)>(growing),
        std::function<double(uint32_t)>(with_pauses)}) {
    Run run{.extra = 0.45, .length = length};
    CHECK(run.go(2000) < 0.0505);
    CHECK_FALSE(run.steps().ends_with(",every=100"));
  }
  int over = 0, rare = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> around(0.5, 1.5);
    Run run{.extra = 0.45, .length = [&](uint32_t) { return around(random); }};
    over += run.go(200) >= 0.06;
    rare += run.steps().ends_with(",every=100");
  }
  CHECK(over <= 5);
  CHECK(rare <= 5);
}

TEST_CASE("step_budget: what steps without values cost is left of what was asked", "[engine]") {
  Run some{.extra = 0.45, .spent = 0.03};
  CHECK(some.go(200) < 0.06);
  CHECK(some.steps() == "0-24,every=5|250-,every=50");
  CHECK(some.says("in steps without values convtrace takes at least 3%"));
  CHECK_FALSE(some.says("out of reach"));
  Run all{.extra = 0.45, .spent = 0.08};
  (void)all.go(200);
  CHECK(all.steps().ends_with(",every=100"));
  CHECK(all.says("convtrace takes at least 8%: 5% is out of reach"));
}

TEST_CASE("step_budget: a round with a gap is not measured", "[engine]") {
  Run run{.extra = 0.45};
  (void)run.go(12);
  run.next = 15;  // three steps of which nothing was seen
  run.now_ns += 1e12;
  (void)run.go(15);
  CHECK(run.steps() == "all,every=5");
  (void)run.go(1);
  CHECK(run.steps() == "0-29,every=5|60-,every=10");
}

TEST_CASE("step_control: steps that are named end the measuring", "[engine]") {
  StepControl steps(settings::Mode::kStats, {}, 0.05);
  CHECK(steps.seen().asked == "all,every=5");
  REQUIRE(steps.budget_text());
  CHECK(steps.capture());  // also of a program without steps
  steps.open(1);
  CHECK_FALSE(steps.capture());
  steps.want(settings::Mode::kHash, {});
  CHECK_FALSE(steps.capture());
  steps.want(settings::Mode::kHash, settings::StepSet::parse_steps("1").value());
  CHECK(steps.capture());
  CHECK_FALSE(steps.budget_text());
  CHECK(StepControl(settings::Mode::kLaunches, {}, 0.05).seen().asked == "all");
}

}  // namespace convtrace::engine
