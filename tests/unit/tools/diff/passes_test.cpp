// Steps in which one run makes more backward passes than the other, or updates other parameters.

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using diff::Class;
using diff::DiffResult;
using diff::Verdict;
using format::Phase;
using test::compared;
using test::count;
using test::Run;
using test::where;
using test::Where;

/// A step in which a module is called once for each of `parts`, which are its batch, and each call
/// is passed back by itself. @param gradient  of the module's weight, summed over the passes
Run divided_step(const std::vector<std::vector<float>>& parts, float gradient) {
  Run run;
  for (uint32_t call = 0; call < parts.size(); ++call) {
    const auto rows = static_cast<uint64_t>(parts[call].size() / 2);
    run.add({.phase = Phase::kData,
             .slot = "input:0",
             .call = call,
             .values = parts[call],
             .shape = {rows, 2}});
    run.add({.slot = "output:0", .call = call, .values = parts[call], .shape = {rows, 2}});
    run.add({.phase = Phase::kLoss,
             .slot = "loss",
             .call = call,
             .values = {parts[call].front() / static_cast<float>(parts.size())}});
    run.add({.phase = Phase::kBackward,
             .slot = "grad_output:0",
             .call = call,
             .values = parts[call],
             .shape = {rows, 2}});
  }
  run.add({.phase = Phase::kBackward, .slot = "grad:weight", .values = {gradient, 1}});
  run.add({.phase = Phase::kOptimizer, .slot = "param:weight", .values = {1 - gradient, 1}});
  return run;
}

}  // namespace

TEST_CASE("diff: backward passes that one run alone makes are where gradients part",
          "[diff][verdict]") {
  const auto run_of = [](const std::vector<float>& losses, float gradient) {
    Run run;
    for (const float loss : losses)
      run.add({.phase = Phase::kLoss, .slot = "loss", .values = {loss}});
    run.add(
        {.phase = Phase::kBackward, .scope = "fc", .slot = "grad:weight", .values = {gradient, 1}});
    return run;
  };
  const DiffResult result = compared(run_of({1, 2, 3}, 6), run_of({3}, 3));
  CHECK(where(result) == Where{0, Phase::kLoss, "", "loss"});
  CHECK(result.root->setting ==
        "backward passes in the step: 3 in the baseline, 1 in the candidate");
  CHECK(compared(run_of({3}, 3), run_of({1, 2, 3}, 6)).root->setting ==
        "backward passes in the step: 1 in the baseline, 3 in the candidate");
  // The losses that both have are paired by value, and no pass is blamed for what nobody passed back.
  const DiffResult alike = compared(run_of({1, 2, 3}, 6), run_of({3}, 6));
  CHECK_FALSE(alike.root.has_value());
  CHECK(count(alike, Class::kIdentical) == 2);
}

TEST_CASE("diff: one batch in other parts is compared by what its passes add up to",
          "[diff][verdict]") {
  const Run in_two = divided_step({{1, 2}, {3, 4}}, 0.5F),
            in_one = divided_step({{1, 2, 3, 4}}, 0.5F);
  const DiffResult same = compared(in_two, in_one);
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kIdentical) == 2);
  CHECK(count(same, Class::kShapeOrDtypeMismatch) == 0);
  REQUIRE(same.summaries.size() == 1);
  CHECK(same.summaries[0].parted == diff::Parted::kCalls);
  CHECK(diff::passes_text(same).starts_with(
      "2 | 1 backward passes in step 0: losses have no partner"));
  const DiffResult undivided = compared(in_two, divided_step({{1, 2, 3, 4}}, 1));
  CHECK(undivided.root->setting ==
        "backward passes in the step: 2 in the baseline, 1 in the candidate, over as many rows: "
        "their number alone explains no other gradients, the losses (2 | 1 in all) or what depends "
        "on the whole batch may");
  REQUIRE(undivided.cause.has_value());
  CHECK(undivided.cause->evidence.front() == "nothing of its step was compared before it");
  const auto in_mode = [](Run run, const std::string& approximate) {
    run.tell(0, "act", "class", "torch.nn.modules.activation.GELU");
    run.tell(0, "act", "attributes", "approximate='" + approximate + "'");
    return run;
  };
  const DiffResult set =
      compared(in_mode(in_two, "none"), in_mode(divided_step({{1, 2, 3, 4}}, 0.6F), "tanh"));
  REQUIRE(set.cause.has_value());
  CHECK(set.cause->text.find("approximate") != std::string::npos);
  CHECK(set.cause->evidence.front() == "no module's own output was compared before it");
  // A batch of other rows is other data.
  CHECK(compared(in_two, divided_step({{1, 2}}, 0.5F)).root == std::nullopt);
  CHECK(where(compared(in_two, divided_step({{1, 3}}, 0.7F))) ==
        Where{0, Phase::kData, "", "input:0"});
}

TEST_CASE("diff: numbers of passes that agreed in a step explain no later one", "[diff][verdict]") {
  const std::vector<std::vector<float>> two = {{1, 2}, {3, 4}}, one = {{1, 2, 3, 4}};
  const auto run_of = [](const std::vector<std::vector<float>>& parts,
                         const std::vector<float>& gradients) {
    Run run;
    for (uint32_t step = 0; step < gradients.size(); ++step)
      for (auto item : divided_step(parts, gradients[step]).items) {
        item.step = step;
        run.add(std::move(item));
      }
    return run;
  };
  const DiffResult later = compared(run_of(two, {0.5F, 0.5F}), run_of(one, {0.5F, 2}));
  CHECK(where(later) == Where{1, Phase::kBackward, "", "grad:weight"});
  CHECK(later.root->setting.empty());
  // Each step's difference would excuse the next one's.
  std::vector<float> creeping, still;
  for (int step = 0; step < 16; ++step) {
    still.push_back(0.5F);
    creeping.push_back(0.5F * (1 + 1e-7F * static_cast<float>(1U << (step + step / 2))));
  }
  CHECK(compared(run_of(two, still), run_of(one, creeping)).verdict != Verdict::kSame);
}

TEST_CASE("diff: losses of unlike counts are paired by value, the rest is not compared",
          "[diff][verdict]") {
  const auto run_of = [](const std::vector<float>& losses) {
    Run run;
    for (uint32_t i = 0; i < losses.size(); ++i)
      run.add({.phase = Phase::kLoss, .slot = "loss", .call = i, .values = {losses[i]}});
    run.add({.phase = Phase::kBackward, .slot = "grad:weight", .values = {2, 1}});
    return run;
  };
  const DiffResult two = compared(run_of({1, 2, 3, 4}), run_of({2, 4}));
  CHECK(count(two, Class::kIdentical) == 3);
  CHECK(count(two, Class::kUnmatched) == 2);
  const DiffResult sum = compared(run_of({1, 2}), run_of({3}));
  CHECK(sum.verdict == Verdict::kSame);
  CHECK(count(sum, Class::kUnmatched) == 3);
}

TEST_CASE("diff: losses that are passed back in another order are paired by value",
          "[diff][verdict]") {
  /// @param passes  the loss of each, and the gradient of the module's output in it
  const auto run_of = [](const std::vector<std::pair<float, float>>& passes) {
    Run run;
    uint32_t call = 0;
    for (const auto& [loss, gradient] : passes) {
      run.add({.phase = Phase::kLoss, .slot = "loss", .call = call, .values = {loss}});
      run.add({.phase = Phase::kBackward,
               .scope = "fc",
               .slot = "grad_output:0",
               .call = call++,
               .values = {gradient, 1}});
    }
    return run;
  };
  const Run base = run_of({{1, 5}, {2, 6}, {3, 7}});
  CHECK(count(compared(base, run_of({{3, 7}, {1, 5}, {2, 6}})), Class::kIdentical) == 6);
  // A loss of another value keeps the place that is left, and is told there.
  const DiffResult wrong = compared(base, run_of({{4, 8}, {1, 5}, {2, 6}}));
  CHECK(where(wrong) == Where{0, Phase::kLoss, "", "loss"});
  CHECK(count(wrong, Class::kIdentical) == 4);
  // Gradients of one pass in another one, whose loss is its own, are a fault.
  CHECK(where(compared(base, run_of({{1, 6}, {2, 5}, {3, 7}}))) ==
        Where{0, Phase::kBackward, "fc", "grad_output:0"});
}

TEST_CASE("diff: steps of two optimizers are no steps of one", "[diff][verdict]") {
  const auto run_of = [](const std::vector<std::string>& order) {
    Run run;
    for (uint32_t step = 0; step < order.size(); ++step) {
      const std::string& scope = order[step];
      if (step == 0)
        for (const char* first : {"g", "d"})
          run.add({.scope = first, .slot = "param:weight", .values = {1, 2}});
      run.add({.step = step,
               .phase = Phase::kData,
               .scope = scope,
               .slot = "input:0",
               .values = {static_cast<float>(scope == "g"), 1}});
      const float updated = 2 + static_cast<float>(step);
      run.add({.step = step,
               .phase = Phase::kOptimizer,
               .scope = scope,
               .slot = "param:weight",
               .values = {updated, 2}});
      run.add({.step = step, .phase = Phase::kOptimizer, .slot = "other", .values = {updated}});
    }
    return run;
  };
  Run cand = run_of({"d", "d", "g"});
  cand.at(1, "", "other").values = {7};
  const DiffResult result = compared(run_of({"d", "g", "d"}), cand);
  CHECK(where(result) == Where{1, Phase::kOptimizer, "g", "param:weight"});
  CHECK(result.root->setting ==
        "the step updates other parameters: g.weight in the baseline, d.weight in the candidate");
}
