// Differences that rounding explains although a value's own size and type do not.

#include <cmath>

#include "tests/unit/tools/diff_compared.h"
#include "tools/diff/report_parts.h"

namespace {

using namespace convtrace;
using diff::Class;
using diff::DiffResult;
using diff::Verdict;
using format::Phase;
using test::compared;
using test::count;
using test::Item;
using test::Run;
using test::scale;

/// A gradient that is nothing but the rounding of values of size `summands`, with another `seed`.
Run with_cancelled_gradient(float summands, float seed) {
  Run run = test::training();
  std::vector<float> zeros(16);
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = seed * (i % 2 == 0 ? 1e-7F : -1e-7F);
  run.at(0, "fc1", "grad_output:0").values.assign(16, summands);
  run.at(0, "fc1", "grad:weight").values = zeros;
  return run;
}

/// An optimizer moves the first elements of a parameter by `move`, the others by `most`.
Run with_update(float gradient, float move, float most) {
  Run run = test::training(1);
  run.at(0, "fc1", "grad:weight").values[0] = gradient;
  Item& updated = run.at(0, "fc1", "param:weight", 1);
  updated.values = run.at(0, "fc1", "param:weight").values;
  for (size_t i = 0; i < updated.values.size(); ++i) updated.values[i] += i < 2 ? move : most;
  return run;
}

/// A module whose output is bf16, and a loss in f32 made of it.
Run with_narrow(double narrow, double loss) {
  Run run = test::training(1);
  Item& output = run.at(0, "fc2", "output:0");
  output.dtype = format::DType::kBF16;
  output.values.assign(output.values.size(), 1);
  output.values[0] = static_cast<float>(narrow);
  scale(run.at(0, "", "loss"), loss);
  return run;
}

}  // namespace

TEST_CASE("rounding: a gradient in which everything cancels is held against its summands",
          "[diff][rounding]") {
  CHECK(compared(with_cancelled_gradient(1, 1), with_cancelled_gradient(1, -3)).verdict ==
        Verdict::kSame);
  CHECK(compared(with_cancelled_gradient(1e-3F, 1), with_cancelled_gradient(1e-3F, -3)).verdict ==
        Verdict::kDiverged);
}

TEST_CASE("rounding: a sum of many terms rounds more often", "[diff][rounding]") {
  // The summands' norm is the same; so many of them go into each of 16 rows.
  const auto run = [](size_t terms, float off) {
    Run made;
    const auto size = 64.0F / std::sqrt(static_cast<float>(terms));
    made.add({.phase = Phase::kBackward,
              .scope = "fc",
              .slot = "grad_output:0",
              .values = std::vector<float>(16 * terms, size)});
    std::vector<float> sums(64, 1);
    sums[8] += off;
    made.add({.phase = Phase::kBackward,
              .scope = "fc",
              .slot = "grad:weight",
              .values = sums,
              .shape = {16, 4}});
    return made;
  };
  CHECK(compared(run(4096, 0), run(4096, 5e-3F)).verdict == Verdict::kSame);
  CHECK(compared(run(16, 0), run(16, 5e-3F)).verdict == Verdict::kDiverged);
}

TEST_CASE("rounding: where gradients differ in bits a parameter may be an update apart",
          "[diff][rounding]") {
  const Run base = with_update(1e-8F, 1e-3F, 1e-3F), cand = with_update(-1e-8F, -1e-3F, 1e-3F);
  const DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kSuspicious) == 1);  // not explained away: it could be a wrong update
  // With equal gradients it is one.
  const DiffResult wrong = compared(base, with_update(1e-8F, -1e-3F, 1e-3F));
  CHECK(wrong.verdict == Verdict::kDiverged);
  CHECK(test::where(wrong) == test::Where{0, Phase::kOptimizer, "fc1", "param:weight"});
  // An update ten times as large is none that went the other way.
  CHECK(compared(base, with_update(-1e-8F, 1e-2F, 1e-3F)).verdict == Verdict::kDiverged);
}

TEST_CASE("rounding: an update is that of one step, however many equal ones were passed over",
          "[diff][rounding]") {
  const auto run = [](float gradient, float last_move) {
    Run made;
    std::vector<float> weights = {1, 2, 3, 4};
    for (uint32_t step = 0; step < 6; ++step) {
      const bool last = step == 5;
      for (float& w : weights) w += last ? 1e-3F : 1.0F;
      if (last) weights[0] += last_move - 1e-3F;
      made.add({.step = step,
                .phase = Phase::kBackward,
                .scope = "fc",
                .slot = "grad:weight",
                .values = {last ? gradient : 1.0F, 1, 1, 1}});
      made.add({.step = step,
                .phase = Phase::kOptimizer,
                .scope = "fc",
                .slot = "param:weight",
                .values = weights});
    }
    return made;
  };
  CHECK(compared(run(1, 1e-3F), run(1 + 1e-6F, -1e-3F)).verdict == Verdict::kSame);
  CHECK(compared(run(1, 1e-3F), run(1 + 1e-6F, -0.5F)).verdict == Verdict::kDiverged);
}

TEST_CASE("rounding: behind a bf16 value that differs nothing is known better than bf16",
          "[diff][rounding]") {
  CHECK(compared(with_narrow(1, 1), with_narrow(1.0078125, 1.0001)).verdict == Verdict::kSame);
  CHECK(compared(with_narrow(1, 1), with_narrow(1, 1.0001)).verdict == Verdict::kDiverged);
  CHECK(compared(with_narrow(1, 1), with_narrow(1.0078125, 1.1)).verdict == Verdict::kDiverged);
}

TEST_CASE("rounding: what an optimizer made of it is in the report of a later root",
          "[diff][rounding]") {
  Run base = with_update(1e-8F, 1e-3F, 1e-3F), cand = with_update(-1e-8F, -1e-3F, 1e-3F);
  for (Run* run : {&base, &cand}) {
    run->add({.step = 1, .scope = "fc2", .slot = "output:0", .values = {1, 2, 3}});
  }
  scale(cand.items.back(), 1.00005);
  const DiffResult result = compared(base, cand);
  REQUIRE(result.root.has_value());
  CHECK(result.root->rounding_enlarged);
  CHECK(diff::rounding_hint(*result.root, false).find("rerun with --noise") != std::string::npos);
  scale(cand.items.back(), 2);
  CHECK(diff::rounding_hint(*compared(base, cand).root, false).empty());
}
