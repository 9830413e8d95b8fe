#include <cfloat>
#include <cmath>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

Training with_loss_scale(Training run, uint32_t steps, float scale = 1024) {
  for (uint32_t step = 0; step < steps; ++step)
    run.before(step, "", "grad_output:0",
               {.scope = "", .slot = "loss_scale", .phase = Phase::kLoss, .values = {scale}});
  return run;
}

TEST_CASE("check: a training in which nothing is wrong is clean, and was judged", "[check]") {
  const check::CheckResult result = checked(training(10));
  CHECK(found(result) == List{});
  CHECK(result.steps == 10);
  CHECK(result.steps_trained == 10);
  CHECK(result.ranks == 1);
  CHECK(result.incomplete.empty());
  for (const char* id : {"stale-gradient", "gradients-add-up", "mode", "same-batch", "input-scale",
                         "learning-rate", "two-steps", "no-gradient", "no-motion", "nan"}) {
    INFO(id);
    CHECK(judged(result, id) != 0);
  }
  for (const char* id : {"tied-parted", "loss-scale", "no-labels", "padding", "same-data",
                         "replicas-parted", "clipping", "accumulation-scale", "saturated"}) {
    INFO(id);
    CHECK(judged(result, id) == 0);
  }
}

TEST_CASE("check nan: the first is named, not what follows from it", "[check][nan]") {
  Training run = training(4);
  run.at(2, "fc2", "output:0").values[3] = kNan;
  run.at(2, "", "output:0").values[3] = kNan;
  run.at(2, "", "loss").values[0] = kNan;
  run.at(3, "fc1", "output:0").values[0] = kInfinity;
  CHECK(found(run) == List{{"nan", Severity::kError, 2, "fc2", "output:0"}});
}

TEST_CASE("check nan: an infinity is one, too", "[check][nan]") {
  Training run = training(3);
  run.at(1, "fc1", "output:0").values[0] = kInfinity;
  run.at(1, "", "output:0").values[0] = kInfinity;
  const check::CheckResult result = checked(run, {"nan"});
  CHECK(found(result) == List{{"nan", Severity::kWarning, 1, "fc1", "output:0"}});
  CHECK(contains(result.findings.at(0).text, "infinity"));
  CHECK(contains(result.findings[0].evidence.at(0), "0 NaN, 1 infinite of 32 elements (f32)"));
}

TEST_CASE("check nan: what goes no further is a note, and hides nothing", "[check][nan]") {
  Training run = training(5);
  for (const uint32_t step : {1U, 2U, 3U}) run.at(step, "fc1", "output:0").values[0] = kNan;
  run.at(1, "fc2", "grad_output:0").values[0] = kNan;
  const check::CheckResult harmless = checked(run, {"nan"});
  CHECK(found(harmless) == List{{"nan", Severity::kHint, 1, "fc1", "output:0"}});
  CHECK(contains(harmless.findings[0].text, "goes no further"));

  run.at(3, "", "loss").values[0] = kNan;  // the root's output is finite: it was born behind it
  const List both = found(checked(run, {"nan"}));
  CHECK(both == List{{"nan", Severity::kError, 3, "", "loss"},
                     {"nan", Severity::kHint, 1, "fc1", "output:0"}});
  run.at(3, "", "output:0").values[0] = kNan;
  const List born = found(checked(run, {"nan"}));
  CHECK(born == List{{"nan", Severity::kError, 3, "fc1", "output:0"}});  // in the place of the note
}

TEST_CASE("check nan: a gradient is told at the module that made it", "[check][nan]") {
  Training run = training(4);
  run.at(2, "fc1", "grad_output:0").values[0] = kNan;
  run.at(2, "fc1", "grad:weight").values[0] = kNan;
  const check::CheckResult result = checked(run, {"nan"});
  CHECK(found(result) == List{{"nan", Severity::kError, 2, "fc2", "grad_input:0"}});
  CHECK(contains(result.findings.at(0).text,
                 "made by the backward of module fc2, received by module fc1 as grad_output:0"));
  REQUIRE(result.findings[0].made_by);
  CHECK(result.findings[0].made_by->receiver.scope == "fc1");
}

TEST_CASE("check nan: a negative infinity is one where no mask can be", "[check][nan]") {
  Training gradient = training(4);
  gradient.at(2, "fc1", "grad:weight").values[0] = -kInfinity;
  CHECK(found(gradient, "nan") == List{{"nan", Severity::kError, 2, "fc1", "grad:weight"}});
  Training loss = training(4);
  loss.at(1, "", "loss").values[0] = -kInfinity;
  CHECK(found(loss, "nan") == List{{"nan", Severity::kError, 1, "", "loss"}});
}

TEST_CASE("check nan: masks, unwritten memory and hashes are silent", "[check][nan]") {
  Training mask = training(3);
  mask.at(1, "fc1", "output:0").values[0] = -kInfinity;
  CHECK(silent(mask, "nan"));
  Training unwritten = training(3);
  unwritten.before(
      1, "fc1", "output:0",
      {.scope = "fc1", .slot = "output:0", .op = "aten::empty_like", .values = {kNan}});
  CHECK(silent(unwritten, "nan"));
  Training hashed = training(3);
  hashed.at(1, "fc1", "output:0").values[0] = kNan;
  hashed.at(1, "fc1", "output:0").capture = format::Capture::kHash;
  CHECK(silent(hashed, "nan"));
}

TEST_CASE("check nan: a weight that its module writes in its first call", "[check][nan]") {
  Training written = training(3);
  StatsSpec garbage = written.at(0, "fc1", "param:weight");
  garbage.phase = Phase::kForward;
  garbage.values[1] = kNan;
  written.before(0, "fc1", "output:0", garbage);
  CHECK(silent(written, "nan"));

  Training looked = written;  // the optimizer steps later
  looked.erase(0, "fc1", "param:weight", Phase::kOptimizer);
  CHECK(silent(looked, "nan"));
  looked.at(0, "fc1", "output:0").values[0] = kNan;
  CHECK(found(checked(looked, {"nan"})) ==
        List{{"nan", Severity::kError, 0, "fc1", "param:weight"}});

  Training kept = written;
  kept.at(0, "fc1", "param:weight", Phase::kOptimizer).values[1] = kNan;
  CHECK(found(checked(kept, {"nan"})) == List{{"nan", Severity::kError, 0, "fc1", "param:weight"}});
}

TEST_CASE("check nan: of the data it is a hint, or the origin", "[check][nan]") {
  Training missing = training(4);
  for (const uint32_t step : {1U, 2U}) missing.at(step, "", "input:0").values[5] = kNan;
  CHECK(found(missing, "nan") == List{{"nan", Severity::kHint, 1, "", "input:0"}});
  Training origin = missing;
  origin.at(2, "fc2", "output:0").values[0] = kNan;
  origin.at(2, "", "output:0").values[0] = kNan;
  const check::CheckResult result = checked(origin, {"nan"});
  CHECK(found(result) == List{{"nan", Severity::kWarning, 2, "", "input:0"}});
}

TEST_CASE("check nan: gradients under a loss scale are a hint, a birth behind them is not",
          "[check][nan]") {
  Training run = with_loss_scale(training(4), 4);
  for (const uint32_t step : {0U, 1U}) run.at(step, "fc1", "grad:weight").values[0] = kInfinity;
  CHECK(found(run, "nan") == List{{"nan", Severity::kHint, 0, "fc1", "grad:weight"}});
  run.at(3, "fc1", "output:0").values[0] = kNan;
  run.at(3, "", "output:0").values[0] = kNan;
  const List both = found(checked(run, {"nan"}));
  CHECK(both == List{{"nan", Severity::kError, 3, "fc1", "output:0"},
                     {"nan", Severity::kHint, 0, "fc1", "grad:weight"}});
}

TEST_CASE("check nan: a loss that its scale makes infinite is a hint", "[check][nan]") {
  Training run = training(4);
  run.at(0, "", "loss").values = {kInfinity};
  const auto level = [&](float scale) {
    return found(with_loss_scale(run, 4, scale), "nan").at(0).severity;
  };
  CHECK(level(0x1p120F) == Severity::kHint);
  CHECK(level(65536) == Severity::kError);  // the loss itself is 1e33 or more
  run.at(0, "", "loss").values = {kNan};
  CHECK(level(0x1p120F) == Severity::kError);
}

TEST_CASE("check nan: what it says of the inputs holds", "[check][nan]") {
  Training run = training(3);
  run.at(1, "fc2", "output:0").values[0] = kNan;
  run.at(1, "", "output:0").values[0] = kNan;
  run.at(1, "fc2", "input:0").values[0] = -kInfinity;
  const check::CheckResult mask = checked(run, {"nan"});
  for (const std::string& line : mask.findings.at(0).evidence)
    CHECK_FALSE(contains(line, "input:0: finite"));

  Training tokens = training(3);
  tokens.at(1, "fc2", "output:0").values[0] = kNan;
  tokens.at(1, "", "output:0").values[0] = kNan;
  StatsSpec& input = tokens.at(1, "fc2", "input:0");
  input.dtype = format::DType::kI64;
  input.stats.count = input.stats.finite = 32;
  input.stats.amax = format::Scalar::u64(50256);
  input.stats.max = format::Scalar::i64(50256);
  input.values.clear();
  const check::CheckResult result = checked(tokens, {"nan"});
  for (const std::string& line : result.findings.at(0).evidence) {
    INFO(line);
    CHECK_FALSE(contains(line, "e-3"));  // bits of an integer read as a float
  }
}

StatsSpec short_floats(format::DType dtype, size_t count, size_t saturated) {
  std::vector<float> values = noise(9, count);
  for (size_t i = 0; i < saturated; ++i) values[i] = FLT_MAX;
  return {.scope = "fc1", .slot = "output:0", .call = 1, .dtype = dtype, .values = values};
}

TEST_CASE("check saturated: values that pile up at the end of a short type", "[check][range]") {
  const auto run = [](format::DType dtype, size_t count, size_t first, size_t then) {
    Training made = training(3);
    made.before(0, "fc2", "input:0", short_floats(dtype, count, first));
    made.before(2, "fc2", "input:0", short_floats(dtype, count, then));
    return made;
  };
  using enum format::DType;
  for (const format::DType dtype : {kBF16, kF16, kF8E4M3FN, kF8E5M2}) {
    CHECK(found(run(dtype, 64, 0, 1), "saturated") ==
          List{{"saturated", Severity::kWarning, 2, "fc1", "output:0"}});
  }
  CHECK(found(run(kBF16, 200, 1, 10), "saturated").size() == 1);  // ten times as many
  CHECK(silent(run(kBF16, 200, 1, 9), "saturated"));
  CHECK(silent(run(kBF16, 128, 0, 1), "saturated"));  // under 1 %
  CHECK(silent(run(kBF16, 64, 8, 8), "saturated"));
  CHECK(unknown(run(kBF16, 63, 0, 20), "saturated"));
  CHECK(unknown(run(kF32, 64, 0, 20), "saturated"));
}

TEST_CASE("check underflow: subnormal gradients of f16 without a loss scale", "[check][range]") {
  const auto run = [](format::DType dtype, const char* slot, size_t first, size_t then) {
    Training made = training(3);
    for (const uint32_t step : {0U, 2U}) {
      std::vector<float> values = noise(step, 64);
      for (size_t i = 0; i < (step == 0 ? first : then); ++i) values[i] = 1e-40F;
      made.before(step, "fc1", "grad:weight",
                  {.scope = "fc1",
                   .slot = slot,
                   .phase = Phase::kBackward,
                   .dtype = dtype,
                   .values = values});
    }
    return made;
  };
  using enum format::DType;
  for (const char* slot : {"grad:other", "grad_output:1"})
    CHECK(found(run(kF16, slot, 0, 16), "underflow") ==
          List{{"underflow", Severity::kWarning, 2, "fc1", slot}});
  CHECK(silent(run(kF16, "grad:other", 0, 15), "underflow"));
  CHECK(silent(run(kF16, "grad:other", 16, 32), "underflow"));
  CHECK(silent(with_loss_scale(run(kF16, "grad:other", 0, 16), 3), "underflow"));
  CHECK(unknown(run(kBF16, "grad:other", 0, 16), "underflow"));
  CHECK(unknown(run(kF16, "output:1", 0, 16), "underflow"));
}

Training growing(uint32_t steps, double factor, double loss_factor) {
  Training run = training(steps);
  double size = 1, loss = 1;
  for (uint32_t step = 0; step < steps; ++step, size *= factor, loss *= loss_factor) {
    run.at(step, "fc2", "output:0").values = scaled(noise(3, 32), size);
    run.at(step, "", "loss").values = {static_cast<float>(loss)};
  }
  return run;
}

TEST_CASE("check norm-growth: by a steady factor, worse where the loss rises", "[check][growth]") {
  CHECK(found(growing(10, 1.6, 0.9), "norm-growth") ==
        List{{"norm-growth", Severity::kHint, 8, "fc2", "output:0"}});
  const check::CheckResult result = checked(growing(10, 1.6, 1.2), {"norm-growth"});
  CHECK(found(result) == List{{"norm-growth", Severity::kWarning, 8, "fc2", "output:0"}});
  CHECK(contains(result.findings[0].text, "grew 1.6 times a step over 8 steps"));
  // ln(3.39e38 / 1.6^8) / ln(1.6)
  CHECK(contains(result.findings[0].text, "near step 188"));
}

TEST_CASE("check norm-growth: only over steps that follow each other", "[check][growth]") {
  Training run = growing(12, 1.6, 1.2);
  std::erase_if(run.entries, [](const Entry& entry) { return entry.step == 5; });
  CHECK(silent(run, "norm-growth"));
}

TEST_CASE("check norm-growth: short, small and unsteady growth is silent", "[check][growth]") {
  CHECK(silent(growing(8, 1.9, 1.2), "norm-growth"));  // 89 times in seven steps
  CHECK(silent(growing(9, 1.5, 1.2), "norm-growth"));  // 25 times
  CHECK(found(growing(10, 1.5, 1.2), "norm-growth").size() == 1);
  CHECK(found(growing(30, 1.2, 1.2), "norm-growth") == List{});
  Training unsteady = growing(12, 1, 1.2);
  double size = 1;
  for (uint32_t step = 0; step < 12; ++step, size *= step % 2 == 0 ? 1.3 : 3)
    unsteady.at(step, "fc2", "output:0").values = scaled(noise(3, 32), size);
  CHECK(silent(unsteady, "norm-growth"));
  Training once = growing(12, 1.6, 1.2);  // it grows, falls back, and grows
  for (uint32_t step = 6; step < 12; ++step)
    once.at(step, "fc2", "output:0").values = scaled(noise(3, 32), std::pow(1.6, step - 6));
  CHECK(silent(once, "norm-growth"));
}

TEST_CASE("check tied-parted: a shared weight has a record of its own", "[check][tied]") {
  Training run = training(3);
  run.fact(0, "fc2", "tied", "bias=fc1.bias, weight=fc1.weight");
  Training tied = run;
  tied.erase({}, "fc2", "param:weight").erase({}, "fc2", "param:bias");
  CHECK(silent(tied, "tied-parted"));
  Training parted = run;
  parted.erase({}, "fc2", "param:bias").erase({}, "fc2", "param:weight", Phase::kForward);
  parted.erase(0, "fc2", "param:weight");
  CHECK(found(parted, "tied-parted") ==
        List{{"tied-parted", Severity::kError, 1, "fc2", "param:weight"}});
  // The shared weight was trained for a whole step: the program may have parted them on purpose.
  parted.erase(1, "fc2", "param:weight");
  CHECK(found(parted, "tied-parted") ==
        List{{"tied-parted", Severity::kWarning, 2, "fc2", "param:weight"}});
  // A name that ends alike is another parameter.
  Training other = tied;
  other.value(2,
              {.scope = "fc2", .slot = "param:eight", .phase = Phase::kOptimizer, .values = {1}});
  CHECK(silent(other, "tied-parted"));
}

}  // namespace
}  // namespace convtrace::test
