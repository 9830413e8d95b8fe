// The limits of gradients, norms and updates: of each, what is rounding and what is not.

#include <cmath>

#include "tests/unit/tools/diff/compared.h"
#include "tests/unit/tools/diff/noisy_runs.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using diff::DiffResult;
using diff::Verdict;
using format::DType;
using format::Phase;
using test::chain;
using test::Change;
using test::compared;
using test::kF32;
using test::noisy;
using test::Run;
using test::trained;
using test::value;
using test::where;
using test::Where;

const Run kEqual = chain(0, 0);

bool is_update(const DiffResult& result) {
  return result.root && result.root->record.phase == Phase::kOptimizer &&
         result.root->record.comparison.field == diff::Field::kUpdate;
}

}  // namespace

TEST_CASE("births: a parameter's gradient is held against the norm of what it sums",
          "[diff][births]") {
  const auto run = [](float summed, float seed) {
    Run made = test::training();
    made.at(0, "fc1", "grad_output:0").values.assign(16, summed);
    std::vector<float>& gradient = made.at(0, "fc1", "grad:weight").values;
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = seed * (i % 2 == 0 ? 1e-7F : -1e-7F);
    return made;
  };
  CHECK(compared(run(1, 1), run(1, -3)).verdict == Verdict::kSame);
  CHECK(compared(run(1e-4F, 1), run(1e-4F, -3)).verdict == Verdict::kDiverged);
  // What a compiler has fused in one run is known of the other.
  for (const float summed : {1.0F, 1e-4F}) {
    Run fused = run(summed, -3);
    fused.erase(0, "fc1", "grad_output:0");
    const Verdict expected = summed == 1 ? Verdict::kSame : Verdict::kDiverged;
    CHECK(compared(run(summed, 1), fused).verdict == expected);
    CHECK(compared(fused, run(summed, 1)).verdict == expected);
  }
}

TEST_CASE("births: what a module's parameter is used for between its calls of others is not known",
          "[diff][births]") {
  const auto run = [](const char* called, double error, size_t size = 64) {
    Run made;
    made.add(value(0, "block", "input:0", 0));
    made.add(value(0, called, "input:0", 0));
    made.add(value(0, called, "output:0", 0));
    made.add(value(0, "block", "output:0", 0));
    std::vector<float> large = noisy(0);
    for (float& v : large) v *= 1000;
    made.add(
        {.phase = Phase::kBackward, .scope = "block", .slot = "grad_output:0", .values = large});
    made.add({.phase = Phase::kBackward,
              .scope = "block",
              .slot = "grad:gamma",
              .values = noisy(error, 1, size)});
    return made;
  };
  CHECK(compared(run("other", 0), run("other", 1e-2)).verdict == Verdict::kSame);
  CHECK(where(compared(run("block.fc", 0), run("block.fc", 1e-2))) ==
        Where{0, Phase::kBackward, "block", "grad:gamma"});
  CHECK(compared(run("block.fc", 0), run("block.fc", 1e-4)).verdict == Verdict::kSame);
  // Of a few elements much may cancel.
  CHECK(compared(run("block.fc", 0, 8), run("block.fc", 1e-2, 8)).verdict == Verdict::kSame);
}

TEST_CASE("births: gradients jump where no value before them did", "[diff][births]") {
  const auto run = [](double forward, double first, double second) {
    Run made;
    made.add(value(0, "a", "output:0", forward));
    for (const auto& [scope, error] : {std::pair{"b", first}, std::pair{"a", second}}) {
      made.add({.phase = Phase::kBackward,
                .scope = scope,
                .slot = "grad_output:0",
                .values = noisy(error, 1, 65536)});
    }
    return made;
  };
  const Run base = run(0, 0, 0);
  CHECK(compared(base, run(100 * kF32, 500 * kF32, 700 * kF32)).verdict == Verdict::kSame);
  // Five times the root of 6e-6 is 1.2 %.
  CHECK(compared(base, run(100 * kF32, 9e-3, 9e-3)).verdict == Verdict::kSame);
  CHECK(where(compared(base, run(100 * kF32, 500 * kF32, 0.5))) ==
        Where{0, Phase::kBackward, "a", "grad_output:0"});
}

TEST_CASE("births: a gradient with an element of another sign is half its size apart at most",
          "[diff][births]") {
  const auto run = [](double output, double gradient) {
    Run made = chain(output / 7, output);
    made.add({.phase = Phase::kBackward,
              .scope = "b",
              .slot = "grad_output:0",
              .values = noisy(gradient, 3, 16)});
    return made;
  };
  const Where gradient{0, Phase::kBackward, "b", "grad_output:0"};
  // One of 16 elements: expected 1.4 times among a thousand gradients.
  CHECK(compared(run(0, 0), run(1500 * kF32, 0.3)).verdict == Verdict::kSame);
  CHECK(where(compared(run(0, 0), run(1500 * kF32, 0.8))) == gradient);
  // 0.01 times.
  CHECK(where(compared(run(0, 0), run(10 * kF32, 0.3))) == gradient);
}

TEST_CASE("births: updates are judged together, by their norm, their direction and their gradients",
          "[diff][births]") {
  // Eight parameters, each moved by `rate` of its gradient and shrunk by `decay`; the first `spared` are moved by 1 %.
  const auto run = [](double error, double rate_of_rest, double decay, int spared = 0) {
    Run made;
    for (const char* scope : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
      const double rate = spared-- > 0 ? 1e-2 : rate_of_rest;
      const std::vector<float> weight = noisy(0, 1);
      const std::vector<float> gradient = noisy(error, static_cast<uint32_t>(scope[0]));
      std::vector<float> updated = weight;
      for (size_t i = 0; i < weight.size(); ++i) {
        updated[i] -= static_cast<float>(rate) * (i % 3 == 0 ? gradient[i] : -gradient[i]) +
                      static_cast<float>(decay) * weight[i];
      }
      made.add({.scope = scope, .slot = "param:w", .values = weight, .shape = {32, 32}});
      made.add({.phase = Phase::kBackward,
                .scope = scope,
                .slot = "grad:w",
                .values = gradient,
                .shape = {32, 32}});
      made.add({.phase = Phase::kOptimizer,
                .scope = scope,
                .slot = "param:w",
                .values = updated,
                .shape = {32, 32}});
    }
    return made;
  };
  const Run base = run(0, 1e-2, 0);
  CHECK(compared(base, run(20 * kF32, 1e-2, 0)).verdict == Verdict::kSame);
  for (const Run& cand : {run(20 * kF32, 1.1e-2, 0), run(20 * kF32, 1e-2, 1e-3)}) {
    const DiffResult result = compared(base, cand);
    REQUIRE(result.root.has_value());
    CHECK(result.root->record.phase == Phase::kOptimizer);
    CHECK(result.root->record.comparison.field == diff::Field::kUpdate);
    CHECK(result.root->updates.wrong == 8);
    CHECK(result.root->updates.all == 8);
    CHECK(diff::headline(result) ==
          "DIVERGED at step 0, optimizer: updates of 8 of 8 parameters, first a, param:w");
  }
  // Of a group of parameters alone.
  const DiffResult group = compared(base, run(20 * kF32, 1.2e-2, 0, 5));
  CHECK(where(group) == Where{0, Phase::kOptimizer, "f", "param:w"});
  CHECK(group.root->updates.wrong == 3);
  diff::DiffRules exact;
  exact.exact = diff::ExactChoice::kOn;
  const DiffResult one = compared(base, run(0, 2e-2, 0, 7), {}, exact);
  CHECK(where(one) == Where{0, Phase::kOptimizer, "h", "param:w"});
  CHECK(one.root->updates.wrong == 1);
  CHECK(diff::headline(one) == "DIVERGED at step 0, optimizer, h (call 0): param:w");
  // With equal gradients no other bit is explained.
  const DiffResult wrong = compared(base, run(0, 1.001e-2, 0));
  CHECK(where(wrong) == Where{0, Phase::kOptimizer, "a", "param:w"});
  CHECK(wrong.root->updates.wrong == 8);
  // Of gradients that one run alone has that is not known.
  Run unknown = run(0, 1.001e-2, 0);
  std::erase_if(unknown.items,
                [](const test::Item& item) { return item.phase == Phase::kBackward; });
  CHECK(compared(base, unknown).verdict == Verdict::kSame);
}

TEST_CASE("births: a parameter whose gradient is rounding alone says nothing of the optimizer",
          "[diff][births]") {
  // As the bias in front of a norm, of which an adaptive optimizer makes whole updates: of averages
  // of it also in a later step, in which it happens to be alike.
  const auto run = [](uint32_t seed, double error, double update) {
    Run made;
    const std::vector<float> weight = noisy(0);
    std::vector<float> updated = weight, large = weight;
    for (const char* scope : {"y", "z"})
      made.add({.scope = scope, .slot = "param:b", .values = weight});
    for (const uint32_t step : {0U, 1U}) {
      std::vector<float> gradient = step == 0 ? noisy(1, seed) : noisy(error, 7);
      for (float& g : gradient) g *= 1e-7F;
      for (float& w : updated) w *= static_cast<float>(1 - update);
      for (float& w : large) w += 1e-3F;
      const auto item = [&](Phase phase, const char* scope, const char* slot,
                            const std::vector<float>& values) {
        made.add({.step = step, .phase = phase, .scope = scope, .slot = slot, .values = values});
      };
      item(Phase::kBackward, "z", "grad_output:0", weight);
      item(Phase::kBackward, "z", "grad:b", gradient);
      item(Phase::kBackward, "y", "grad:b", weight);
      item(Phase::kOptimizer, "y", "param:b", large);
      item(Phase::kOptimizer, "z", "param:b", updated);
    }
    return made;
  };
  CHECK(compared(run(1, 0, 1e-2), run(2, 0.2, -1e-2)).verdict == Verdict::kSame);
  CHECK(compared(run(1, 0, 1e-2), run(1, 0.2, -1e-2)).verdict == Verdict::kDiverged);
}

TEST_CASE("births: updates beside gradients that differ by rounding", "[diff][births]") {
  const Run base = trained({});
  const auto rounding = [&](const Change& change) {
    return compared(base, trained(change)).verdict == Verdict::kSame;
  };
  const auto fault = [&](const Change& change) {
    return is_update(compared(base, trained(change)));
  };
  CHECK(rounding({.error = 2e-3}));
  // Another weight decay: an update along the weights.
  CHECK(fault({.error = 2e-3, .decay = 1e-3}));
  CHECK(rounding({.error = 1e-2, .lean = 0.7}));
  CHECK(rounding({.error = 1e-2, .rate = 1.03e-2}));
  // Norms of updates change with those of gradients, up to twice as much.
  CHECK(rounding({.factor = 1.06}));
  CHECK(fault({.error = 1e-2, .factor = 1.01, .rate = 1.1e-2}));
  CHECK(fault({.error = 1e-2, .rate = 1.1e-2}));
}

TEST_CASE("births: of one update the norm is known by chance alone", "[diff][births]") {
  for (const char* parameter : {"a", "b", "c", "d", "e", "f"}) {
    CAPTURE(parameter);
    CHECK(
        compared(trained({}, parameter), trained({.error = 0.03, .gain = 10}, parameter)).verdict ==
        Verdict::kSame);
  }
}

TEST_CASE("births: a norm averages over the elements, so it changes less than they do",
          "[diff][births]") {
  const auto run = [](double source, double factor) {
    Run made = chain(source, source);
    test::scale(made.at(0, "b", "output:0"), 1 + factor);
    return made;
  };
  const auto verdict = [&](double source, double factor) {
    return compared(run(0, 0), run(source, factor)).verdict;
  };
  // As much of a difference without a direction is rounding.
  CHECK(compared(kEqual, chain(0, 180 * kF32)).verdict == Verdict::kSame);
  CHECK(verdict(0, 140 * kF32) == Verdict::kSame);
  CHECK(verdict(0, 180 * kF32) == Verdict::kDiverged);
  CHECK(compared(kEqual, chain(1000 * kF32 / 7, 1000 * kF32)).verdict == Verdict::kSame);
  CHECK(verdict(200 * kF32, 250 * kF32) == Verdict::kSame);
  CHECK(verdict(200 * kF32, 600 * kF32) == Verdict::kDiverged);
}
