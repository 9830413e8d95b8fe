// Each row of the table of limits is needed: without it a pair of runs is judged otherwise.

#include <algorithm>
#include <cmath>

#include "tests/unit/tools/diff/compared.h"
#include "tests/unit/tools/diff/noisy_runs.h"

namespace {

using namespace convtrace;
using diff::DiffResult;
using diff::Verdict;
using format::DType;
using format::Phase;
using test::chain;
using test::compared;
using test::Item;
using test::kBF16;
using test::kF32;
using test::noisy;
using test::Run;
using test::scale;
using test::trained;
using test::value;
using test::with_type;

/// A pair of runs that a row is needed for.
struct Needed {
  std::string_view row;
  Run base, cand;
  Verdict verdict = Verdict::kSame;
  std::vector<Run> noise{};
};

Needed of_type(std::string_view row, DType dtype, double error) {
  return {row, with_type(chain(0, 0), dtype), with_type(chain(0, error), dtype)};
}

/// Outputs of two calls, the second also scaled: relative to the values.
Run scaled(double source, double factor) {
  Run made = chain(source, source);
  scale(made.at(0, "b", "output:0"), 1 + factor);
  return made;
}

/// A forward pass, and gradients behind it.
Run passed_back(double forward, double gradient, size_t size) {
  Run made = chain(forward / 7, forward);
  made.add({.phase = Phase::kBackward,
            .scope = "b",
            .slot = "grad_output:0",
            .values = noisy(gradient, 3, size)});
  return made;
}

/// An output in bf16 whose mean is shifted. @param spread  of its elements, around 1
Run shifted(double by, double spread, size_t size) {
  Run made;
  made.add(value(0, "a", "input:0", 0));
  Item& output = made.add(value(0, "a", "output:0", 0));
  output.dtype = DType::kBF16;
  output.values = noisy(0, 1, size);
  for (float& v : output.values)
    v = static_cast<float>((spread == 1 ? v : 1 + spread * v) + by * kBF16);
  return made;
}

Run stored(double error, double fault) {
  Run made = chain(0, error);
  Item& output = made.at(0, "b", "output:0");
  output.values = noisy(error, 1, 16384);
  output.values[77] += static_cast<float>(fault);
  output.capture = format::Capture::kSnapshot;
  return made;
}

/// A gradient that is the sum of much larger terms.
Run summed(double size, DType dtype = DType::kF32) {
  Run made = test::training();
  made.at(0, "fc1", "grad_output:0").values.assign(16, 1);
  Item& gradient = made.at(0, "fc1", "grad:weight");
  gradient.dtype = dtype;
  for (size_t i = 0; i < gradient.values.size(); ++i)
    gradient.values[i] = static_cast<float>(i % 2 == 0 ? size : -size);
  return made;
}

Run between_calls(double error) {
  Run made;
  made.add(value(0, "block", "input:0", 0));
  made.add(value(0, "block.fc", "input:0", 0));
  made.add(value(0, "block.fc", "output:0", 0));
  made.add(value(0, "block", "output:0", 0));
  Item& output = made.add(value(0, "block", "grad_output:0", 0));
  output.phase = Phase::kBackward;
  scale(output, 1000);
  made.add(value(0, "block", "grad:gamma", error)).phase = Phase::kBackward;
  return made;
}

/// Two calls of a norm with a running average.
Run averaged(double first, double second) {
  Run made;
  for (const uint32_t step : {0U, 1U}) {
    made.add(value(step, "norm", "input:0", 0));
    made.add(value(step, "norm", "output:0", 0));
    scale(made.add(value(step, "norm", "buffer:mean", step == 0 ? first : second)), 0.01);
  }
  return made;
}

Run with_loss(double by) {
  Run made = chain(0, 0);
  made.add({.phase = Phase::kLoss, .slot = "loss", .values = {static_cast<float>(4 + by)}});
  return made;
}

/// Two steps of a bias in front of a norm, whose gradient is rounding alone in the first.
Run rounded_gradient(uint32_t seed, double error, double update) {
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
}

std::vector<Needed> all_needed() {
  constexpr Verdict kFault = Verdict::kDiverged;
  const Run equal = chain(0, 0), moved = trained({});
  return {
      {"gain", equal, chain(200 * kF32, 1000 * kF32)},
      of_type("born in 16 bits", DType::kBF16, 2 * kBF16),
      of_type("born in f32 and f64", DType::kF32, 50 * kF32),
      of_type("born by a cast", DType::kF4E2M1FN, 0.1),
      {"gain of a norm", equal, scaled(200 * kF32, 250 * kF32)},
      {"norm, born", equal, scaled(0, 140 * kF32)},
      {"kinks", passed_back(0, 0, 65536), passed_back(100 * kF32, 9e-3, 65536)},
      {"one sign", passed_back(0, 0, 16), passed_back(1500 * kF32, 0.3, 16)},
      {"mean", shifted(0, 1, 1024), shifted(0.2, 1, 1024)},
      {"mean of like errors", shifted(0, 1, 65536), shifted(0.07, 1, 65536)},
      {"element", stored(0, 0), stored(20 * kF32, 0.001), kFault},
      {"sum in 16 bits", summed(1e-2, DType::kBF16), summed(-3e-2, DType::kBF16)},
      {"sum in f32 and f64", summed(1e-7), summed(-3e-7)},
      {"terms between calls", between_calls(0), between_calls(1e-2), kFault},
      {"gain of a buffer", averaged(0, 0), averaged(0.001, 0.005)},
      {"loss", with_loss(0), with_loss(1e-3), kFault},
      {"noise", with_loss(0), with_loss(1e-3), Verdict::kSame, {with_loss(-2e-3)}},
      {"noise of a norm", equal, scaled(0, 1e-3), Verdict::kSame, {scaled(0, 2e-3)}},
      {"noise of a mean",
       shifted(0, 1, 65536),
       shifted(1, 1, 65536),
       Verdict::kSame,
       {shifted(-1, 1, 65536)}},
      {"noise of an element",
       stored(0, 0),
       stored(20 * kF32, 0.001),
       Verdict::kSame,
       {stored(1e-4, 0)}},
      {"norm of updates", moved, trained({.error = 1e-2, .rate = 1.04e-2})},
      {"norm of updates, by gradients", moved, trained({.factor = 1.06})},
      {"chance in the norm of updates", trained({}, "a"),
       trained({.error = 0.03, .gain = 10}, "a")},
      {"cosine of updates", moved, trained({.error = 2e-3, .decay = 1e-3}), kFault},
      {"gain of an update", moved, trained({.error = 1e-4, .gain = 600}), kFault},
      {"unlike gradient", rounded_gradient(1, 0, 1e-2), rounded_gradient(2, 0.2, -1e-2)},
  };
}

}  // namespace

TEST_CASE("table: each row has a pair of runs that is judged otherwise without it",
          "[diff][births][table]") {
  const std::vector<Needed> all = all_needed();
  for (const diff::BirthRow& row : diff::kBirthRows) {
    INFO(row.name);
    const auto needed = std::ranges::find(all, row.name, &Needed::row);
    CHECK(needed != all.end());
    if (needed == all.end()) continue;
    std::vector<diff::BirthRow> without;
    std::ranges::copy_if(diff::kBirthRows, std::back_inserter(without),
                         [&](const diff::BirthRow& one) { return one.name != row.name; });
    const auto verdict = [&](std::span<const diff::BirthRow> table) {
      return compared(needed->base, needed->cand, needed->noise, {}, table).verdict;
    };
    CHECK(verdict(diff::kBirthRows) == needed->verdict);
    CHECK(verdict(without) ==
          (needed->verdict == Verdict::kSame ? Verdict::kDiverged : Verdict::kSame));
  }
  CHECK(all.size() == std::size(diff::kBirthRows));
}
