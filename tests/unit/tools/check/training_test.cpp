#include <algorithm>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

/// A network with dropout whose modules are in evaluation mode from `step` to before `until`.
Training evaluating(uint32_t step, uint32_t until, bool with_dropout) {
  Training run = training(10);
  if (with_dropout) {
    run.fact(0, "drop", "class", "torch.nn.modules.dropout.Dropout");
    run.fact(0, "drop", "attributes", "inplace=False, p=0.1");
    for (uint32_t at = 0; at < 10; ++at)
      run.before(at, "fc2", "input:0",
                 {.scope = "drop", .slot = "output:0", .values = noise(at, 32)});
  }
  for (const char* scope : {"", "fc1", "fc2", "drop"}) {
    run.fact(0, scope, "mode", "train");
    run.fact(step, scope, "mode", "eval");
    if (until < 10) run.fact(until, scope, "mode", "train");
  }
  return run;
}

TEST_CASE("check mode: trained in evaluation mode after training mode", "[check][mode]") {
  const check::CheckResult result = checked(evaluating(4, 10, true), {"mode"});
  CHECK(found(result) == List{{"mode", Severity::kWarning, 4, "", ""}});
  CHECK(contains(result.findings[0].evidence.at(1), "module drop, Dropout"));
  CHECK(found(evaluating(4, 7, true), "mode").size() == 1);
  CHECK(silent(evaluating(4, 6, true), "mode"));   // it comes back after two steps
  CHECK(silent(evaluating(0, 10, true), "mode"));  // it never trained otherwise
  CHECK(found(evaluating(4, 10, false), "mode") == List{{"mode", Severity::kHint, 4, "", ""}});
  // A dropout of rate 0 computes the same.
  Training none = evaluating(4, 10, true);
  for (Entry& entry : none.entries)
    if (entry.text == "inplace=False, p=0.1") entry.text = "inplace=False, p=0.0";
  CHECK(found(none, "mode") == List{{"mode", Severity::kHint, 4, "", ""}});
}

TEST_CASE("check mode: norms that are frozen later are a hint", "[check][mode]") {
  Training run = training(8);
  run.fact(0, "fc1", "class", "torch.nn.modules.batchnorm.BatchNorm1d");
  std::erase_if(run.entries, [](const Entry& entry) {
    return entry.value.scope == "fc1" && entry.fact == "class" &&
           entry.text.find("BatchNorm") == std::string::npos;
  });
  run.fact(0, "fc1", "mode", "train").fact(3, "fc1", "mode", "eval");
  CHECK(found(run, "mode") == List{{"mode", Severity::kHint, 3, "fc1", ""}});
}

TEST_CASE("check mode: one that alternates is silent", "[check][mode]") {
  Training run = training(10);
  for (uint32_t step = 1; step < 10; ++step)
    run.fact(step, "fc1", "mode", step % 3 == 0 ? "train" : "eval");
  CHECK(silent(run, "mode"));
}

Training evaluated(unsigned calls, const char* kind, const char* mode, uint32_t step = 4) {
  Training run = training(6);
  run.fact(0, "norm", "class", kind);
  for (uint32_t at = 0; at < 6; ++at)
    run.before(at, "fc2", "input:0",
               {.scope = "norm", .slot = "output:0", .values = noise(at, 32)});
  for (const char* scope : {"", "norm"}) run.fact(step, scope, "mode.evaluation", mode);
  for (uint32_t i = 0; i < calls; ++i)
    run.before(step, "fc1", "input:0",
               {.scope = "norm",
                .slot = "output:0",
                .phase = Phase::kEvaluation,
                .call = i,
                .values = noise(i + 90, 32)});
  return run;
}

TEST_CASE("check mode: an evaluation that takes one batch several times samples", "[check][mode]") {
  const auto run_of = [](bool same) {
    Training run = evaluated(3, "torch.nn.modules.dropout.Dropout", "train");
    for (uint32_t i = 0; i < 3; ++i)
      run.before(4, "fc1", "input:0",
                 {.scope = "",
                  .slot = "input:0",
                  .phase = Phase::kEvaluation,
                  .call = i,
                  .values = noise(same ? 70 : 70 + i, 32)});
    return found(run.fact(0, "norm", "attributes", "p=0.3"), "mode");
  };
  REQUIRE(run_of(false).size() == 1);
  CHECK(run_of(false)[0].severity == Severity::kWarning);
  REQUIRE(run_of(true).size() == 1);
  CHECK(run_of(true)[0].severity == Severity::kHint);
}

TEST_CASE("check mode: evaluated in training mode", "[check][mode]") {
  const char* const norm = "torch.nn.modules.batchnorm.BatchNorm2d";
  CHECK(found(evaluated(2, norm, "train"), "mode") ==
        List{{"mode", Severity::kWarning, 4, "norm", ""}});
  Training alone =
      evaluated(2, "torch.nn.modules.dropout.Dropout", "train");  // a dropout that is sampled
  CHECK(found(alone, "mode").size() == 1);
  alone.fact(4, "", "mode.evaluation", "eval");
  CHECK(found(alone, "mode") == List{{"mode", Severity::kHint, 4, "norm", ""}});
  CHECK(silent(evaluated(1, norm, "train"), "mode"));  // a generator that makes fakes
  CHECK(silent(evaluated(2, norm, "eval"), "mode"));
  CHECK(silent(evaluated(2, "torch.nn.modules.normalization.LayerNorm", "train"), "mode"));
  Training average = evaluated(2, norm, "train");  // never trained itself
  for (uint32_t step = 0; step < 6; ++step)
    average.erase(step, "norm", "output:0", Phase::kForward);
  CHECK(silent(average, "mode"));
}

TEST_CASE("check same-batch: three steps running", "[check][data]") {
  const auto run = [](const std::vector<uint32_t>& steps) {
    Training made = training(6);
    for (const uint32_t step : steps) made.at(step, "", "input:0").values = noise(9999, 32);
    return made;
  };
  const check::CheckResult result = checked(run({2, 3, 4}), {"same-batch"});
  CHECK(found(result) == List{{"same-batch", Severity::kWarning, 2, "", "input:0"}});
  CHECK(contains(result.findings[0].text, "Steps 2 to 4 took the same batch."));
  CHECK(silent(run({2, 3}), "same-batch"));
  CHECK(silent(run({1, 2, 4}), "same-batch"));
  Training gap = run({2, 4, 5});  // steps without values in between
  std::erase_if(gap.entries, [](const Entry& entry) { return entry.step == 3; });
  CHECK(silent(gap, "same-batch"));
  CHECK(found(run({0, 1, 2, 3, 4, 5}), "same-batch").size() == 1);
}

TEST_CASE("check same-batch: a tensor that is not written in between is a hint", "[check][data]") {
  const auto run = [](uint32_t step, auto change) {
    Training made = training(6);
    for (const uint32_t one : {2U, 3U, 4U}) {
      StatsSpec& entry = made.at(one, "", "input:0");
      entry.values = noise(9999, 32);
      entry.value = {.storage = 7, .generation = 1, .version = 3};
      if (one == step) change(entry.value);
    }
    return found(made, "same-batch");
  };
  const auto severity = [&](auto change) { return run(3, change).at(0).severity; };
  CHECK(severity([](auto&) {}) == Severity::kHint);
  CHECK(severity([](auto& value) { value.storage = 8; }) == Severity::kWarning);
  CHECK(severity([](auto& value) { value.generation = 2; }) == Severity::kWarning);
  CHECK(severity([](auto& value) { value.version = 4; }) == Severity::kWarning);
  CHECK(severity([](auto& value) { value.storage = 0; }) == Severity::kWarning);
  CHECK(run(4, [](auto& value) { value.version = 4; }).at(0).severity == Severity::kWarning);
}

TEST_CASE("check same-batch: constants and evaluations are silent", "[check][data]") {
  Training constant = training(5), single = constant, evaluation = constant, labels = constant;
  for (uint32_t step = 0; step < 5; ++step) {
    constant.at(step, "", "input:0").values.assign(32, 1);
    single.at(step, "", "input:0").values = {0.3F};
    // Evaluations take the same batch each time.
    evaluation.before(
        step, "", "input:0",
        {.scope = "", .slot = "input:0", .phase = Phase::kEvaluation, .values = noise(1, 32)});
    // One of two inputs is the same.
    labels.before(
        step, "", "input:0",
        {.scope = "", .slot = "input:labels", .phase = Phase::kData, .values = noise(1, 32)});
  }
  CHECK(found(constant, "same-batch") == List{});
  CHECK(found(single, "same-batch") == List{});
  CHECK(silent(evaluation, "same-batch"));
  CHECK(silent(labels, "same-batch"));
}

Training padded(format::Padding padding, std::vector<uint64_t> counts,
                Phase phase = Phase::kForward) {
  Training run = training(static_cast<uint32_t>(counts.size()));
  for (uint32_t step = 0; step < counts.size(); ++step) {
    StatsSpec value{.scope = "embed", .slot = "input:0", .phase = phase};
    value.stats.count = 10;
    const auto place = std::ranges::find(run.entries, step, &Entry::step);
    run.entries.insert(
        place, {.step = step, .value = value, .padding = padding, .pad_count = counts[step]});
  }
  return run;
}

TEST_CASE("check no-labels: all are the ignored index", "[check][data]") {
  using enum format::Padding;
  const check::CheckResult result = checked(padded(kLabels, {0, 10, 3, 10}), {"no-labels"});
  CHECK(found(result) == List{{"no-labels", Severity::kWarning, 1, "embed", "input:0"}});
  CHECK(result.findings[0].times == 2);
  // Of a sum it is a hint where another micro-batch has labels.
  Training sum = padded(kLabels, {0, 10, 3});
  sum.fact(0, "embed", "loss.cross_entropy_loss", "reduction='sum', ignore_index=-100");
  CHECK(found(sum, "no-labels").at(0).severity == Severity::kWarning);
  const auto lost = std::ranges::find(sum.entries, 10U, &Entry::pad_count);
  Entry other = *lost;
  other.pad_count = 4, other.value.call = 1;
  sum.entries.insert(lost, other);
  CHECK(found(sum, "no-labels") == List{{"no-labels", Severity::kHint, 1, "embed", "input:0"}});
  CHECK(silent(padded(kLabels, {0, 9, 3}), "no-labels"));
  CHECK(unknown(padded(kLabels, {format::kNotCounted, format::kNotCounted}), "no-labels"));
  CHECK(unknown(padded(kLabels, {10, 10}, Phase::kEvaluation), "no-labels"));
  CHECK(unknown(padded(kEmbedding, {10, 10}), "no-labels"));
}

TEST_CASE("check padding: more than half of what an embedding looks up", "[check][data]") {
  using enum format::Padding;
  CHECK(found(padded(kEmbedding, {2, 9, 10}), "padding") ==
        List{{"padding", Severity::kHint, 0, "embed", "input:0"}});
  CHECK(silent(padded(kEmbedding, {2, 9, 4}), "padding"));  // exactly half
  CHECK(unknown(padded(kEmbedding, {format::kNotCounted}), "padding"));
  CHECK(unknown(padded(kLabels, {10, 10}), "padding"));
}

Training sized(const std::vector<double>& sizes, size_t count = 32,
               format::DType dtype = format::DType::kF32) {
  Training run = training(static_cast<uint32_t>(sizes.size()));
  for (uint32_t step = 0; step < sizes.size(); ++step) {
    run.at(step, "", "input:0").values = scaled(noise(1, count), sizes[step]);
    run.at(step, "", "input:0").dtype = dtype;
  }
  return run;
}

TEST_CASE("check input-scale: data of another size", "[check][data]") {
  const List at_5 = {{"input-scale", Severity::kWarning, 5, "", "input:0"}};
  CHECK(found(sized({1, 1.1, 0.9, 1, 1, 255, 255}), "input-scale") == at_5);
  CHECK(found(sized({1, 1.1, 0.9, 1, 1, 0.004, 0.004}), "input-scale") == at_5);
  CHECK(silent(sized({1, 1.1, 0.9, 1, 1, 19, 19}), "input-scale"));
  CHECK(silent(sized({1, 1.1, 0.9, 1, 1, 255}), "input-scale"));          // once
  CHECK(silent(sized({1, 1.1, 0.9, 1, 1, 255, 1, 255}), "input-scale"));  // not running
  CHECK(silent(sized({1, 1.1, 0.9, 1, 255, 255}), "input-scale"));        // four steps are no habit
  CHECK(silent(sized({1, 1.1, 5, 1, 1, 255, 255}), "input-scale"));       // never steady
  CHECK(silent(sized({1, 1.1, 0.9, 1, 1, 0, 0}), "input-scale"));         // nothing is no size
  const std::vector<double> sizes = {1, 1.1, 0.9, 1, 1, 255, 255};
  CHECK(unknown(sized(sizes, 15), "input-scale"));
  CHECK(unknown(sized(sizes, 32, format::DType::kI32), "input-scale"));
  // Steps that do not train have other data.
  Training inference = sized(sizes);
  std::erase_if(inference.entries, [](const Entry& entry) {
    return entry.step >= 5 &&
           (entry.value.phase == Phase::kBackward || entry.value.phase == Phase::kOptimizer);
  });
  CHECK(silent(inference, "input-scale"));
}

TEST_CASE("check: findings about memory are told with their level", "[check][memory]") {
  const auto run = [](TraceBuilder& trace) {
    training(2).append_to(trace);
    trace.finding({.kind = format::FindingKind::kUseAfterFree,
                   .level = format::Level::kError,
                   .scope = "fc1",
                   .op = "demo::gelu",
                   .slot = "output:0",
                   .message = "it reads freed memory"});
    trace.finding({.kind = format::FindingKind::kNeverWritten, .level = format::Level::kInfo});
    trace.finding({.kind = format::FindingKind::kStaleRead, .suppressed = true});
    trace.finding({.kind = format::FindingKind::kInputMutated, .level = format::Level::kDebug});
  };
  const check::CheckResult result = checked(run);
  CHECK(found(result) == List{{"use-after-free", Severity::kError, 1, "fc1", "output:0"},
                              {"never-written", Severity::kHint, 1, "", ""}});
  CHECK(result.findings[0].op == "demo::gelu");
  CHECK(result.findings[0].text == "it reads freed memory");
  CHECK(found(checked(run, {"never-written"})).size() == 1);
}

TEST_CASE("check: the cause of a finding about memory is that of its kind", "[check][memory]") {
  const auto cause = [](format::FindingKind kind) {
    const auto result = checked([kind](TraceBuilder& trace) {
      training(2).append_to(trace);
      trace.finding({.kind = kind, .level = format::Level::kWarning});
    });
    return result.findings.at(0).cause;
  };
  using Kind = format::FindingKind;
  for (const Kind kind : {Kind::kInputMutated, Kind::kAutotuneMutation})
    CHECK(cause(kind).starts_with("mutation: "));
  for (const Kind kind : {Kind::kFreedUnderOutput, Kind::kUseAfterFree, Kind::kStaleRead})
    CHECK(cause(kind) == "memory that was given back while something still used it");
  CHECK(cause(Kind::kNeverWritten) == "an op that leaves a part of its output as it was allocated");
}

}  // namespace
}  // namespace convtrace::test
