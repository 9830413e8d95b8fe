// Inputs of another type or shape, with other numbers: a mask that was added and is now a choice.

#include <sstream>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/report/reports.h"

namespace convtrace::test {
namespace {

using Catch::Contains;
using diff::Class;
using diff::DiffResult;
using diff::ExactChoice;
using diff::Verdict;
using format::DType;
using format::Phase;

/// A block of an inner module, both with a mask; `inner` and `outer` are added to what they give.
Run masked(DType mask, float inner = 0, float outer = 0) {
  Run run;
  const auto taken = [&](const char* scope) {
    run.add({.scope = scope, .slot = "input:0", .values = {1, 2, 3, 4}});
    run.add({.scope = scope, .slot = "input:mask", .values = {0, 1, 1, 0}, .dtype = mask});
    if (mask == DType::kF32) run.items.back().values = {0, -9, -9, 0};
  };
  taken("block");
  taken("block.inner");
  run.add({.scope = "block.inner", .slot = "output:0", .values = {5, 6, 7, 8 + inner}});
  run.add({.scope = "block", .slot = "output:0", .values = {5, 6, 7, 9 + outer}});
  return run;
}

const Run kAdded = masked(DType::kF32), kChosen = masked(DType::kI64);
constexpr float kRounding = 0x1p-19F;

}  // namespace

TEST_CASE("other form: an input of which the same is made is told and no root", "[diff][form]") {
  for (const ExactChoice exact : {ExactChoice::kOff, ExactChoice::kOn}) {
    diff::DiffRules rules;
    rules.exact = exact;
    const DiffResult result = compared(kAdded, kChosen, {}, rules);
    CHECK(result.verdict == Verdict::kSame);
    CHECK(count(result, Class::kIdentical) == 4);
    CHECK(count(result, Class::kOtherForm) == 2);
    CHECK_FALSE(result.first_bit_difference.has_value());
    REQUIRE(result.other_forms.size() == 1);
    CHECK(result.other_forms[0].values == 2);
    CHECK(result.other_forms[0].first.scope == "block");
  }
  const DiffResult result = compared(kAdded, kChosen);
  const tools::Json json = diff::json_report(result);
  CHECK(json["agreement"] == "identical");
  CHECK(json["other_forms"][0]["slot"] == "input:mask");
  CHECK(json["other_forms"][0]["values"] == 2);
  std::ostringstream text;
  diff::write_text_report(result, {}, text);
  CHECK_THAT(text.str(), Contains("IDENTICAL: every compared value has the same bits, but for 2 "
                                  "values in another form, of which the same was made"));
  CHECK_THAT(text.str(), Contains("other form  input:mask: f32 [4] on cpu against i64 [4] on cpu, "
                                  "first at step 0, forward, block (call 0) (2 values); what was "
                                  "made of it agrees"));
}

TEST_CASE("other form: an input of which something else is made is the root", "[diff][form]") {
  const DiffResult inner = compared(kAdded, masked(DType::kI64, 1, 1));
  CHECK(where(inner) == Where{0, Phase::kForward, "block", "input:mask"});
  CHECK(inner.root->record.comparison.verdict == Class::kShapeOrDtypeMismatch);
  CHECK(inner.other_forms.empty());
  const DiffResult outer = compared(kAdded, masked(DType::kI64, 0, 1));
  CHECK(where(outer) == Where{0, Phase::kForward, "block", "input:mask"});
  CHECK(count(outer, Class::kOtherForm) == 1);
  // Nobody says what was made of it.
  Run base = kAdded, cand = kChosen;
  for (Run* run : {&base, &cand}) run->erase(0, "block", "output:0");
  CHECK(where(compared(base, cand)) == Where{0, Phase::kForward, "block", "input:mask"});
}

TEST_CASE("other form: it excuses no fault and hides no rounding behind it", "[diff][form]") {
  const DiffResult rounding = compared(kAdded, masked(DType::kI64, kRounding, kRounding));
  CHECK(rounding.verdict == Verdict::kSame);
  CHECK(count(rounding, Class::kWithinNoise) == 2);
  REQUIRE(rounding.first_bit_difference.has_value());
  CHECK(rounding.first_bit_difference->record.scope == "block.inner");
  Run cand = kChosen;
  cand.add({.scope = "head", .slot = "input:0", .values = {1, 2, 3, 4}});
  Run base = kAdded;
  base.add({.scope = "head", .slot = "input:0", .values = {1, 2, 3, 5}});
  CHECK(where(compared(base, cand)) == Where{0, Phase::kForward, "head", "input:0"});
}

namespace {

/// A layer that gives its expert `rows` of its rows, and adds `fault` to what it gives out itself.
Run routed(size_t rows, float fault = 0, float between = 0) {
  Run run;
  const std::vector<float> all = {1, 2, 3, 4, 5, 6},
                           part(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rows) * 2);
  const std::vector<uint64_t> whole = {3, 2}, cut = {rows, 2};
  const auto add = [&](const char* scope, const char* slot, const std::vector<float>& values,
                       const std::vector<uint64_t>& shape, Phase phase = Phase::kForward) {
    run.add({.phase = phase, .scope = scope, .slot = slot, .values = values, .shape = shape});
  };
  add("layer", "input:0", all, whole);
  add("layer.expert", "input:0", part, cut);
  add("layer.expert.act", "input:0", part, cut);
  add("layer.expert.act", "output:0", part, cut);
  add("layer.expert", "output:0", part, cut);
  add("layer.norm", "input:0", {1, 2 + between}, {1, 2});
  add("layer.norm", "output:0", {1, 2 + between}, {1, 2});
  add("layer", "output:0", {7, 8, 9, 1, 2, 3 + fault}, whole);
  add("layer", "grad_output:0", all, whole, Phase::kBackward);
  add("layer.expert", "grad_output:0", part, cut, Phase::kBackward);
  add("layer.expert", "grad:weight", {1, 2 + fault}, {2}, Phase::kBackward);
  return run;
}

}  // namespace

TEST_CASE("other form: the call around it shows what was made of other rows", "[diff][form]") {
  const DiffResult same = compared(routed(2), routed(3));
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kOtherForm) == 5);
  CHECK(count(same, Class::kIdentical) == 6);
  const DiffResult wrong = compared(routed(2), routed(3, 1));
  CHECK(where(wrong) == Where{0, Phase::kForward, "layer", "output:0"});
  CHECK(wrong.root->record.comparison.worst_input == Class::kOtherForm);
  CHECK(count(wrong, Class::kOtherForm) == 5);
  std::ostringstream text;
  diff::write_text_report(wrong, {}, text);
  CHECK_THAT(text.str(), !Contains("what was made of it agrees"));
  // A value inside that can be compared is nearer.
  CHECK(where(compared(routed(2), routed(3, 1, 1))) ==
        Where{0, Phase::kForward, "layer.expert", "input:0"});
  // So is a call that makes another shape of equal inputs.
  Run cut = routed(3, 1);
  cut.at(0, "layer.norm", "output:0").shape = {2};
  CHECK(where(compared(routed(3), cut)) == Where{0, Phase::kForward, "layer.norm", "output:0"});
  // Nothing shows what was made of the rows.
  Run base = routed(2), cand = routed(3, 1);
  for (Run* run : {&base, &cand}) run->erase(0, "layer", "output:0");
  CHECK(where(compared(base, cand)) == Where{0, Phase::kForward, "layer.expert", "input:0"});
}

namespace {

constexpr std::string_view kLoss = "aten::cross_entropy_loss";

/// A model, a loss called as a function, its gradient and the next step.
Run labelled(const std::vector<float>& labels, float loss = 3, float gradient = 1, float next = 5) {
  Run run;
  run.add({.slot = "output:0", .values = {1, 2, 3, 4}});
  run.add({.slot = "input:1", .op = std::string(kLoss), .values = labels, .dtype = DType::kI64});
  run.add({.phase = Phase::kLoss, .slot = "loss", .values = {loss}});
  run.add({.phase = Phase::kBackward, .slot = "grad_output:0", .values = {gradient, 0, -1, 0}});
  run.add({.step = 1, .slot = "output:0", .values = {next, 6}});
  return run;
}

}  // namespace

TEST_CASE("other form: labels that lead to one loss and one gradient", "[diff][form]") {
  const Run base = labelled({1, 2, 3});
  const auto root_of_labels = [&](const Run& cand) {
    const DiffResult result = compared(base, cand);
    return result.root && result.root->record.slot == "input:1";
  };
  for (const std::vector<float>& labels : {std::vector<float>{1, 2, 3, -100}, {1, 2, -1}}) {
    const DiffResult same = compared(base, labelled(labels));
    CHECK(same.verdict == Verdict::kSame);
    CHECK(count(same, Class::kOtherForm) == 1);
    // Another loss or another gradient is what the labels have led to.
    CHECK(root_of_labels(labelled(labels, 4)));
    CHECK(root_of_labels(labelled(labels, 3, 2)));
    // What differs behind them has its own root.
    CHECK(where(compared(base, labelled(labels, 3, 1, 7))) ==
          Where{1, Phase::kForward, "", "output:0"});
  }
  // Rounding behind other labels of one shape may be what they have changed.
  CHECK(root_of_labels(labelled({1, 2, -1}, 3 * (1 + 0x1p-22F))));
  CHECK_FALSE(root_of_labels(labelled({1, 2, 3, -100}, 3 * (1 + 0x1p-22F))));
  // Nothing says what became of them.
  for (const char* slot : {"loss", "grad_output:0"}) {
    Run without = base, cand = labelled({1, 2, -1});
    for (Run* run : {&without, &cand}) run->erase(0, "", slot);
    CHECK(where(compared(without, cand)) == Where{0, Phase::kForward, "", "input:1"});
  }
}

TEST_CASE("other form: labels of a criterion, which returns the loss", "[diff][form]") {
  const auto run_of = [](float label, float other) {
    Run run;
    run.add({.scope = "criterion", .slot = "input:1", .values = {1, label}, .dtype = DType::kI64});
    run.add({.scope = "other", .slot = "input:0", .values = {other}, .dtype = DType::kI64});
    run.add({.scope = "other", .slot = "output:0", .values = {8}});
    run.add({.scope = "criterion", .slot = "output:0", .values = {3}});
    run.add({.phase = Phase::kLoss, .slot = "loss", .values = {3}});
    run.add({.phase = Phase::kBackward, .slot = "grad_output:0", .values = {1}});
    return run;
  };
  CHECK(compared(run_of(2, 0), run_of(-1, 0)).verdict == Verdict::kSame);
  CHECK(where(compared(run_of(2, 0), run_of(2, 1))) ==
        Where{0, Phase::kForward, "other", "input:0"});
}

TEST_CASE("other form: data in another arrangement", "[diff][form]") {
  Run base = training(3);
  for (uint32_t step = 0; step < 3; ++step) {
    Item gradient = base.at(step, "fc2", "grad_output:0");
    gradient.scope.clear();
    const auto behind = std::ranges::find_if(base.items, [&](const Item& item) {
      return item.step == step && item.slot == "grad_output:0";
    });
    base.items.insert(behind, gradient);
  }
  Run other = base;  // rows in another order, and what is made of them on the way
  const auto arrange = [](Run& run, uint32_t step, const char* scope, const char* slot) {
    for (size_t i = 0; i < 2; ++i)
      if (i == 0 || (scope == std::string("fc1") && slot == std::string("output:0")))
        std::ranges::reverse(run.at(step, scope, slot, i).values);
  };
  for (uint32_t step = 0; step < 3; ++step) {
    for (const char* scope : {"", "fc1", "fc2"})
      for (const char* slot : {"input:0", "output:0"}) arrange(other, step, scope, slot);
    for (const char* scope : {"", "fc1", "fc2"}) arrange(other, step, scope, "grad_output:0");
  }
  const DiffResult same = compared(base, other);
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kBitDifference) == 0);
  CHECK(count(same, Class::kOtherForm) > 20);
  const Where data{0, Phase::kData, "", "input:0"};
  Run loss = other, gradient = other, alone = other, update = other, exact = other;
  scale(loss.at(0, "", "loss"), 1.00001);
  CHECK(where(compared(base, loss)) == data);
  scale(gradient.at(0, "fc1", "grad:weight"), 1.001);
  CHECK(where(compared(base, gradient)) == data);
  alone.erase(0, "fc1", "grad:weight");
  CHECK(where(compared(base, alone)) == data);
  // The call, or one of its outputs, takes no part in these gradients.
  Run monitored = other, carried = other, plain = base;
  for (Run* run : {&monitored, &plain}) run->erase(0, "", "grad_output:0");
  CHECK(where(compared(plain, monitored)) == data);
  Run kept = base;
  for (Run* run : {&kept, &carried}) {
    Item state = run->at(0, "", "output:0");
    state.slot = "output:1";
    run->items.insert(std::ranges::find(run->items, std::string("loss"), &Item::slot), state);
  }
  CHECK(where(compared(kept, carried)) == data);
  // Other numbers, whose effect no loss and no gradient shows.
  Run small = other;
  small.at(0, "", "input:0").values[3] += 1e-4F;
  CHECK(where(compared(base, small)) == data);
  // The order matters to a running average.
  Run averaged = base, moved = other;
  for (Run* run : {&averaged, &moved}) {
    Item average = run->at(0, "fc2", "output:0");
    average.slot = "buffer:running_mean";
    average.values = {run == &moved ? 2.0F : 1.0F};
    run->items.insert(std::ranges::find(run->items, std::string("loss"), &Item::slot), average);
  }
  CHECK(where(compared(averaged, moved)) == data);
  // Values that outlive the step are judged as ever.
  scale(update.at(1, "fc1", "param:weight"), 1.01);
  CHECK(where(compared(base, update)) == Where{1, Phase::kOptimizer, "fc1", "param:weight"});
  diff::DiffRules rules;
  rules.exact = ExactChoice::kOn;
  CHECK(where(compared(base, other, {}, rules)) == data);
  // What is allowed by hand, and numbers of 16 bits, prove nothing.
  rules = {};
  rules.tolerances = {diff::parse_tolerance("grad:*=1").value()};
  CHECK(where(compared(base, other, {}, rules)) == data);
  Run coarse = base, turned = other;
  for (Run* run : {&coarse, &turned}) run->at(1, "fc2", "output:0").dtype = DType::kBF16;
  CHECK(where(compared(coarse, turned)) == Where{1, Phase::kData, "", "input:0"});
  // A later step with other data.
  Run later = other;
  scale(later.at(2, "", "loss"), 1.01);
  CHECK(where(compared(base, later)) == Where{2, Phase::kData, "", "input:0"});
  // Another shape: padding, the batch behind the time.
  Run shape = base;
  shape.at(0, "fc2", "output:0").shape = {4, 4};
  CHECK(compared(base, shape).verdict == Verdict::kSame);
  Run narrow = base;
  narrow.at(0, "fc2", "output:0").dtype = DType::kF16;
  CHECK(where(compared(base, narrow)).slot == "output:0");
}

}  // namespace convtrace::test
