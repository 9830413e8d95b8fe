#include <cmath>

#include "tests/unit/tools/diff/compared.h"

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
using test::where;
using test::Where;

Class root_class(const DiffResult& result) { return result.root->record.comparison.verdict; }

/// The candidate's fc1 output is overwritten between the op that made it and fc2, from `step` on;
/// everything downstream suffers.
Run with_lost_output(Run run, uint32_t step) {
  run.at(step, "fc2", "input:0").values.assign(16, 7);
  run.at(step, "fc2", "input:0").generation = 99;
  scale(run.at(step, "fc2", "output:0"), 3);
  scale(run.at(step, "", "output:0"), 3);
  scale(run.at(step, "", "loss"), 3);
  return run;
}

}  // namespace

TEST_CASE("diff: a trace against itself is the same, every value identical", "[diff]") {
  const DiffResult result = compared(test::training(), test::training());
  CHECK(result.verdict == Verdict::kSame);
  CHECK_FALSE(result.root.has_value());
  CHECK_FALSE(result.first_bit_difference.has_value());
  CHECK(count(result, Class::kIdentical) == result.values);
  CHECK(result.values == test::training().items.size() - 4);
  CHECK(result.launches == 4);
  CHECK(result.incomplete.empty());
  CHECK(result.preflight.empty());
}

TEST_CASE("diff: the root is the first divergent value, not its louder victims", "[diff][root]") {
  Run cand = test::training();
  scale(cand.at(1, "fc2", "output:0"), 1.01);
  scale(cand.at(1, "", "output:0"), 1.01);
  scale(cand.at(1, "", "loss"), 5);
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.verdict == Verdict::kDiverged);
  CHECK(where(result) == Where{1, format::Phase::kForward, "fc2", "output:0"});
  CHECK(root_class(result) == Class::kDiverged);
  CHECK(result.root->record.comparison.worst_input == Class::kIdentical);
  CHECK(result.root->record.comparison.difference > 0);
  CHECK(result.root->record.comparison.difference > result.root->record.comparison.tolerance);
}

TEST_CASE("diff: values before the root are counted over all earlier steps", "[diff][root]") {
  Run cand = test::training();
  scale(cand.at(1, "", "input:0"), 2);
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.root->matched_before == 16);  // all values of step 0
}

TEST_CASE("diff: differing data of the root module is the data's fault", "[diff][root]") {
  Run cand = test::training();
  scale(cand.at(0, "", "input:0"), 2);
  scale(cand.at(0, "fc1", "output:0"), 2);
  CHECK(where(compared(test::training(), cand)) == Where{0, format::Phase::kData, "", "input:0"});
}

TEST_CASE("diff: initial parameters that differ are named before any step", "[diff][root]") {
  Run cand = test::training();
  for (const size_t nth : {0U, 1U}) scale(cand.at(0, "fc2", "param:weight", nth), 2);
  scale(cand.at(0, "fc2", "output:0"), 2);
  const DiffResult result = compared(test::training(), cand);
  CHECK(where(result) == Where{0, format::Phase::kForward, "fc2", "param:weight"});
  CHECK(root_class(result) == Class::kDiverged);
  CHECK(result.root->weights_differ);
}

TEST_CASE("diff: equal gradients and another parameter are the optimizer's fault", "[diff][root]") {
  Run cand = test::training();
  scale(cand.at(0, "fc1", "param:weight", 1), 1.5);
  const DiffResult result = compared(test::training(), cand);
  CHECK(where(result) == Where{0, format::Phase::kOptimizer, "fc1", "param:weight"});
  CHECK_FALSE(result.root->weights_differ);
}

TEST_CASE("diff: a NaN in one run only is nan-born", "[diff][class]") {
  Run cand = test::training();
  cand.at(0, "fc2", "output:0").values[3] = std::nanf("");
  const DiffResult result = compared(test::training(), cand);
  CHECK(root_class(result) == Class::kNanBorn);
  CHECK(root_class(compared(cand, test::training())) == Class::kNanBorn);
}

TEST_CASE("diff: another shape or dtype is a mismatch", "[diff][class]") {
  Run shape = test::training();
  shape.at(0, "fc2", "output:0").shape = {4, 4};
  scale(shape.at(0, "", "loss"), 2);
  CHECK(root_class(compared(test::training(), shape)) == Class::kShapeOrDtypeMismatch);
  Run dtype = test::training();
  dtype.at(0, "fc2", "output:0").dtype = format::DType::kF64;
  CHECK(root_class(compared(test::training(), dtype)) == Class::kShapeOrDtypeMismatch);
}

TEST_CASE("diff: rounding is within noise, and so is what it passes on", "[diff][class]") {
  Run rounding = test::training();
  scale(rounding.at(0, "", "loss"), 1 + 3e-7);
  DiffResult result = compared(test::training(), rounding);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kWithinNoise) == 1);
  REQUIRE(result.first_bit_difference.has_value());
  CHECK(result.first_bit_difference->record.slot == "loss");

  Run drift = test::training();
  for (const char* scope : {"fc2", ""}) scale(drift.at(0, scope, "output:0"), 1 + 1e-5);
  scale(drift.at(0, "", "loss"), 1 + 8e-6);
  result = compared(test::training(), drift);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kWithinNoise) == 3);
}

TEST_CASE("diff: a value that changed on the way blames its producer, not the consumer",
          "[diff][lineage]") {
  const Run cand = with_lost_output(test::training(), 1);
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.verdict == Verdict::kDiverged);
  CHECK(root_class(result) == Class::kChangedBetween);
  CHECK(where(result) == Where{1, format::Phase::kForward, "fc1", "output:0"});
  CHECK(result.root->record.op == "demo::gelu");
  CHECK(result.root->changed_in_cand);
  REQUIRE(result.root->consumer.has_value());
  CHECK(result.root->consumer->scope == "fc2");
  REQUIRE(result.root->effect.has_value());
  CHECK(result.root->effect->scope == "fc2");
  CHECK(result.root->effect->slot == "output:0");
  CHECK(count(result, Class::kChangedBetween) == 1);
}

TEST_CASE("diff: a value that changes on the way in both runs is a habit of the program",
          "[diff][lineage]") {
  Run base = test::training(), cand = test::training();
  base.at(0, "fc2", "input:0").values.assign(16, 1);
  cand.at(0, "fc2", "input:0").values.assign(16, 1);
  scale(cand.at(0, "", "loss"), 2);
  const DiffResult result = compared(base, cand);
  CHECK(count(result, Class::kChangedBetween) == 0);
  CHECK(where(result) == Where{0, format::Phase::kLoss, "", "loss"});
}

TEST_CASE("diff: an op that writes its operand in one run alone is the root", "[diff][lineage]") {
  const auto run = [](float left, float result) {
    Run made = test::training(1);
    const auto value = [&](const char* slot, std::vector<float> values, uint64_t storage) {
      made.add({.scope = "fc1",
                .slot = slot,
                .op = "demo::norm",
                .values = std::move(values),
                .capture = format::Capture::kHash,
                .storage = storage});
    };
    value("input:0", {1, 2, 3, 4}, 900);
    value("input_after:0", {left, 2, 3, 4}, 900);
    made.add({.scope = "fc1", .slot = "output:0", .op = "demo::other", .values = {result, 1}});
    return made;
  };
  const DiffResult result = compared(run(1, 5), run(7, 9));
  CHECK(root_class(result) == Class::kChangedBetween);
  CHECK(where(result) == Where{0, format::Phase::kForward, "fc1", "input:0"});
  CHECK(result.root->record.op == "demo::norm");
  CHECK(result.root->changed_in_cand);
  // What both runs write is a habit of the op; what diverged before is the cause.
  CHECK(compared(run(7, 5), run(7, 9)).root->record.op == "demo::other");
  Run before = run(7, 9);
  scale(before.at(0, "fc1", "output:0"), 2);
  CHECK(compared(run(1, 5), before).root->record.op != "demo::norm");
}

TEST_CASE("diff: a divergence before the producer wins over a change after it", "[diff][lineage]") {
  Run cand = with_lost_output(test::training(), 1);
  scale(cand.at(1, "", "input:0"), 2);
  CHECK(where(compared(test::training(), cand)) == Where{1, format::Phase::kData, "", "input:0"});
}

TEST_CASE("diff: what was born comes before what was passed on", "[diff][root]") {
  Run base = test::training(), cand = test::training();
  for (Run* run : {&base, &cand}) {
    for (const char* scope : {"victim", "culprit"}) {
      run->add({.step = 1, .scope = scope, .slot = "input:0", .values = {1, 2, 3}});
      run->add({.step = 1, .scope = scope, .slot = "output:0", .values = {1, 2, 3}});
    }
  }
  scale(cand.at(1, "victim", "input:0"), 1 + 5e-6);
  scale(cand.at(1, "victim", "output:0"), 1 + 3e-5);
  scale(cand.at(1, "culprit", "output:0"), 2);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{1, format::Phase::kForward, "culprit", "output:0"});
  CHECK(result.root->record.comparison.worst_input == Class::kIdentical);
  CHECK(result.births.size() == 1);
}

TEST_CASE("diff: exchanging the runs names the same root", "[diff][root]") {
  Run ordinary = test::training();
  scale(ordinary.at(1, "fc1", "output:0", 1), 2);
  Run reordered = ordinary;
  std::swap(reordered.items[3], reordered.items[2]);
  for (const Run& cand : {ordinary, reordered, with_lost_output(test::training(), 0)}) {
    const DiffResult there = compared(test::training(), cand);
    const DiffResult back = compared(cand, test::training());
    CHECK(where(there) == where(back));
    CHECK(root_class(there) == root_class(back));
    CHECK(there.counts == back.counts);
  }
}

TEST_CASE("diff: records of one run only are unmatched and never the root", "[diff][align]") {
  Run cand = test::training();
  cand.erase(0, "fc1", "grad_output:0");
  cand.add({.step = 1, .scope = "extra", .slot = "output:0", .values = {1, 2, 3}});
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kUnmatched) == 2);
}

TEST_CASE("diff: what one run did more before the root is told with it", "[diff][align]") {
  Run base = test::training(3), cand = base;
  scale(cand.at(2, "fc2", "output:0"), 3);
  cand.add({.step = 1, .scope = "fc9", .slot = "output:0", .values = {1, 2, 3}});
  cand.add({.step = 2, .scope = "fc9", .slot = "output:0", .values = {1, 2, 3}});  // after the root
  const DiffResult result = compared(base, cand);
  REQUIRE(result.root.has_value());
  const diff::OneSided& told = result.root->one_sided_before;
  CHECK(told.count == 1);
  CHECK(told.in_cand);
  CHECK(told.first.scope == "fc9");
  CHECK(told.first.step == 1);
  const DiffResult exchanged = compared(cand, base);
  CHECK(exchanged.root->one_sided_before.count == 1);
  CHECK_FALSE(exchanged.root->one_sided_before.in_cand);
  CHECK(compared(base, with_lost_output(base, 1)).root->one_sided_before.count == 0);
}

TEST_CASE("diff: a module that one run calls more often is the root of what is made of it",
          "[diff][align][root]") {
  const auto loop = [](uint32_t times, bool used = true) {
    Run run = test::training(1);
    std::vector<float> state = {1, 2, 3};
    run.add({.scope = "in", .slot = "output:0", .values = state});
    for (uint32_t call = 0; call < times; ++call) {
      run.add({.scope = "cell", .slot = "input:0", .call = call, .values = state});
      state = {state[1] + 1, state[2] - 1, state[0] / 2};
      run.add({.scope = "cell", .slot = "output:0", .call = call, .values = state});
    }
    if (!used) state = {static_cast<float>(times), 0, 1};
    run.add(
        {.scope = "out", .slot = "input:0", .values = state, .capture = format::Capture::kHash});
    run.add({.scope = "out", .slot = "output:0", .values = {state[0] + state[1], 1, state[2]}});
    return run;
  };
  for (const bool in_cand : {true, false}) {
    const DiffResult result = in_cand ? compared(loop(1), loop(3)) : compared(loop(3), loop(1));
    REQUIRE(result.root.has_value());
    CHECK(where(result) == Where{0, format::Phase::kForward, "cell", "output:0"});
    CHECK(result.root->record.call == 1);
    CHECK(result.root->setting ==
          (in_cand ? "module cell is called 1 time in the baseline, 3 times in the candidate"
                   : "module cell is called 3 times in the baseline, 1 time in the candidate"));
  }
  CHECK(where(compared(loop(1, false), loop(3, false))).scope == "out");  // of other values
  diff::DiffRules ignoring;
  ignoring.ignored.push_back(*diff::parse_ignored("cell"));
  CHECK(where(compared(loop(1), loop(3), {}, ignoring)).scope == "out");
}

TEST_CASE("diff: a gradient sums over calls: more of them are the root", "[diff][align][root]") {
  const auto accumulated = [](uint32_t times) {
    Run run = test::training(1);
    std::vector<float> sum(3);
    for (uint32_t call = 0; call < times; ++call) {
      for (float& v : sum) v += static_cast<float>(call) + 1;
      run.add({.scope = "cell", .slot = "output:0", .call = call, .values = {1, 2, 3}});
    }
    run.add({.phase = format::Phase::kOptimizer, .scope = "cell", .slot = "grad:w", .values = sum});
    return run;
  };
  const DiffResult result = compared(accumulated(2), accumulated(4));
  CHECK(where(result) == Where{0, format::Phase::kForward, "cell", "output:0"});
  CHECK(result.root->setting ==
        "module cell is called 2 times in the baseline, 4 times in the candidate");
}

TEST_CASE("diff: a repeated key is matched by its occurrence", "[diff][align]") {
  Run base = test::training(), cand = test::training();
  for (Run* run : {&base, &cand}) {
    for (const float v : {1.0F, 2.0F, 3.0F}) {
      run->add({.step = 1, .scope = "loop", .slot = "output:0", .values = {v}});
    }
  }
  cand.items.back().values = {4};
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{1, format::Phase::kForward, "loop", "output:0"});
  CHECK(result.root->record.how == diff::MatchedBy::kOccurrence);
  CHECK(count(result, Class::kDiverged) == 1);
}

TEST_CASE("diff: a shorter run is compared up to its end and called incomplete", "[diff]") {
  Run cand = test::training(4);
  cand.end_before(2);
  const DiffResult result = compared(test::training(4), cand);
  CHECK(result.verdict == Verdict::kIncomplete);
  CHECK(result.steps == 2);
  REQUIRE(result.incomplete.size() == 1);
  CHECK(result.incomplete[0] ==
        "CT-2402 candidate: ends after step 1, the other run goes on to step 3");
  CHECK(count(result, Class::kUnmatched) == 28);
}

TEST_CASE("diff: evaluation behind the last update is no step that is counted", "[diff]") {
  Run run = test::training(3);
  for (Item& item : run.items)
    if (item.step == 2) item.phase = format::Phase::kEvaluation;
  Run other = run;
  CHECK(compared(run, run).steps == 2);
  scale(other.at(0, "", "loss"), 2);
  CHECK(compared(run, other).steps == 2);
  std::erase_if(run.items, [](const Item& item) { return item.step < 2; });
  CHECK(compared(run, run).steps == 1);
}

TEST_CASE("diff: launches alone cannot be compared", "[diff]") {
  Run run = test::training();
  std::erase_if(run.items, [](const Item& item) { return item.kind == Item::Kind::kValue; });
  const DiffResult result = compared(run, run);
  CHECK(result.verdict == Verdict::kNotComparable);
  CHECK(result.launches == 4);
}

TEST_CASE("diff: one step without any value in common cannot be called the same", "[diff]") {
  Run cand = test::training();
  std::erase_if(cand.items,
                [](const Item& item) { return item.kind == Item::Kind::kValue && item.step == 1; });
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.verdict == Verdict::kNotComparable);
  CHECK(result.why_not_comparable == "CT-2408 no value could be compared in step 1");
}

TEST_CASE("diff: two programs with little in common are not comparable", "[diff]") {
  Run cand = test::training();
  for (Item& item : cand.items) {
    if (!item.scope.empty()) item.scope = "other." + item.scope;
    if (!item.values.empty()) item.values.push_back(2);
  }
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.verdict == Verdict::kNotComparable);
  CHECK_FALSE(result.root.has_value());
}

TEST_CASE("diff: equal values with an error-level finding are a verdict of their own",
          "[diff][findings]") {
  Run cand = test::training();
  Item& finding = cand.add({.kind = Item::Kind::kFinding, .scope = "fc1"});
  CHECK(compared(test::training(), cand).verdict == Verdict::kFindings);
  CHECK(compared(cand, cand).verdict == Verdict::kFindings);
  finding.suppressed = true;
  CHECK(compared(test::training(), cand).verdict == Verdict::kSame);
  finding.suppressed = false;
  finding.level = format::Level::kWarning;
  CHECK(compared(test::training(), cand).verdict == Verdict::kSame);
}

TEST_CASE("diff: the finding about the root's memory is the probable cause", "[diff][findings]") {
  Run cand = with_lost_output(test::training(), 1);
  const uint64_t storage = cand.at(1, "fc1", "output:0").storage;
  cand.items.insert(cand.items.begin(), {.kind = Item::Kind::kFinding, .scope = "fc1"});
  cand.items.insert(
      cand.items.end() - 3,
      {.kind = Item::Kind::kFinding, .step = 1, .scope = "elsewhere", .storage = storage});
  const DiffResult result = compared(test::training(), cand);
  REQUIRE(result.cause.has_value());
  CHECK(result.cause->finding->in_cand);
  CHECK(result.cause->finding->same_memory);
  CHECK(result.cause->finding->finding.storage == storage);
  CHECK(result.cause->finding->finding.free_stack == std::vector<std::string>{"free_it", "main"});
}

TEST_CASE("diff: a warning about the root's op or memory is its probable cause",
          "[diff][findings]") {
  Run base = test::training(), cand = test::training();
  scale(cand.at(1, "fc1", "output:0"), 2);
  Item warning{.kind = Item::Kind::kFinding,
               .scope = "fc1",
               .op = "demo::gelu",
               .level = format::Level::kWarning};
  const auto cause = [&] {
    Run with_warning = cand;
    with_warning.items.insert(with_warning.items.begin(), warning);
    const auto found = compared(base, with_warning).cause;
    return found ? found->finding : std::nullopt;
  };
  SECTION("of its op, in whatever module") {
    warning.scope = "elsewhere";
    REQUIRE(cause().has_value());
    CHECK(cause()->finding.level == format::Level::kWarning);
    CHECK_FALSE(cause()->same_memory);
  }
  SECTION("of an op in its module") {
    cand = test::training();
    scale(cand.at(1, "fc2", "output:0"), 2);
    CHECK_FALSE(cause().has_value());
    warning.scope = "fc2";
    CHECK(cause().has_value());
  }
  SECTION("of its memory") {
    warning.op = "demo::other";
    warning.step = 1;
    warning.storage = cand.at(1, "fc1", "output:0").storage;
    REQUIRE(cause().has_value());
    CHECK(cause()->same_memory);
  }
  SECTION("not of another op") {
    warning.op = "demo::other";
    CHECK_FALSE(cause().has_value());
  }
  SECTION("not one that both runs have") {
    base.items.insert(base.items.begin(), warning);
    CHECK_FALSE(cause().has_value());
  }
  SECTION("less than an error that one run alone has") {
    cand.items.insert(cand.items.begin(), {.kind = Item::Kind::kFinding, .scope = "elsewhere"});
    REQUIRE(cause().has_value());
    CHECK(cause()->finding.level == format::Level::kError);
  }
}

TEST_CASE("diff: findings after an ordinary root are not its cause", "[diff][findings]") {
  Run cand = test::training();
  scale(cand.at(0, "", "input:0"), 2);
  cand.add({.kind = Item::Kind::kFinding, .step = 1, .scope = "fc1"});
  const DiffResult result = compared(test::training(), cand);
  CHECK(result.verdict == Verdict::kDiverged);
  REQUIRE(result.cause.has_value());
  CHECK(result.cause->rule == "scaled-input");
}

TEST_CASE("diff: a hash of floats shows a bit difference only, of integers a divergence",
          "[diff][class]") {
  Run cand = test::training();
  cand.at(0, "fc1", "input:0").values[0] += 1;
  cand.at(0, "fc1", "input:0").storage = 0;
  Run base = test::training();
  DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kBitDifference) == 1);
  REQUIRE(result.first_bit_difference.has_value());
  CHECK(result.first_bit_difference->record.slot == "input:0");

  base.at(0, "fc1", "input:0").dtype = format::DType::kI64;
  cand.at(0, "fc1", "input:0").dtype = format::DType::kI64;
  result = compared(base, cand);
  CHECK(where(result) == Where{0, format::Phase::kForward, "fc1", "input:0"});
}

TEST_CASE("diff: memory that an op gives out unwritten is never blamed, nor who is given it",
          "[diff][class]") {
  const auto run = [](float junk, float result) {
    Run made = test::training(1);
    const auto value = [&](const char* op, const char* slot, float v) {
      made.add({.scope = "fc1",
                .slot = slot,
                .op = op,
                .values = {v, v},
                .dtype = format::DType::kI32,
                .storage = 900});
    };
    value("aten::new_empty", "output:0", junk);
    value("aten::add_.Tensor", "input:0", junk);
    value("aten::mul.Tensor", "output:0", result);
    made.items.back().storage = 901;
    return made;
  };
  const DiffResult same = compared(run(1, 5), run(2, 5));
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kWithinNoise) == 2);
  CHECK_FALSE(same.first_bit_difference.has_value());
  const DiffResult used = compared(run(1, 5), run(2, 6));  // something was made of it
  CHECK(used.root->record.op == "aten::mul.Tensor");
  // Its contents are no source of rounding either: numbers that differ behind it are where it begins.
  const auto labelled = [&](float junk, float label) {
    Run made = run(junk, 5);
    made.add({.scope = "fc2",
              .slot = "input:1",
              .op = "aten::cross_entropy_loss",
              .values = {label, 1},
              .dtype = format::DType::kI64});
    return made;
  };
  CHECK(compared(labelled(1, 2), labelled(2, 3)).root->record.op == "aten::cross_entropy_loss");
  Run named = run(1, 5);
  for (Item& item : named.items) {
    if (item.op == "aten::new_empty") item.op = "aten::new_empty_but_filled";
  }
  Run other = named;
  other.at(0, "fc1", "output:0", 2).values = {7, 7};
  CHECK(compared(named, other).root->record.op == "aten::new_empty_but_filled");
}

TEST_CASE("diff: a gradient that one run alone has is where they part", "[diff][verdict]") {
  const Run base = test::training(4);
  Run cand = base;
  cand.erase(2, "fc1", "grad:weight");
  const DiffResult lost = compared(base, cand);
  CHECK(where(lost) == Where{2, Phase::kBackward, "fc1", "grad:weight"});
  CHECK(lost.root->only_in == "baseline");
  CHECK(compared(cand, base).root->only_in == "candidate");
  // What ends before its optimizer, whose module was not called, or that is 0 is not lost.
  Run ended = cand;
  for (const char* layer : {"fc1", "fc2"}) ended.erase(2, layer, "param:weight");
  CHECK_FALSE(compared(base, ended).root.has_value());
  Run uncalled = cand;
  uncalled.erase(2, "fc1", "output:0");
  CHECK_FALSE(compared(base, uncalled).root.has_value());
  Run nothing = base;
  for (float& v : nothing.at(2, "fc1", "grad:weight").values) v = 0;
  CHECK_FALSE(compared(nothing, cand).root.has_value());
  // Settings may leave gradients out.
  Run fewer = cand;
  fewer.meta.facts.emplace_back("setting.CONVTRACE_EXCLUDE", "fc1");
  CHECK_FALSE(compared(base, fewer).root.has_value());
}

TEST_CASE("diff: gradients that one run alone clips are where they part", "[diff][verdict]") {
  // The gradient of one run before it is clipped, and the other's that it is not.
  const auto run_of = [](double factor) {
    Run run = test::training(3);
    test::scale(run.at(1, "fc1", "grad:weight"), 1 / factor);
    return run;
  };
  const auto clipped = [&](double factor) {
    Run run = test::training(3);
    test::Item whole = run_of(factor).at(1, "fc1", "grad:weight");
    whole.slot = "grad_unclipped:weight";
    const auto at = std::ranges::find_if(run.items, [](const test::Item& item) {
      return item.step == 1 && item.slot == "grad:weight";
    });
    run.items.insert(at, whole);
    return run;
  };
  const DiffResult found = compared(clipped(0.5), run_of(0.5));
  CHECK(where(found) == Where{1, Phase::kBackward, "fc1", "grad_unclipped:weight"});
  CHECK(found.root->setting ==
        "gradients are clipped in the baseline alone, to 50 % of their norm");
  // A run without a record of the clipping whose optimizer got the same gradients clips by itself.
  CHECK_FALSE(compared(clipped(0.5), test::training(3)).root.has_value());
}

TEST_CASE("diff: gradients that both runs clip, to unlike norms", "[diff][verdict]") {
  const auto run_of = [](float before, float after) {
    Run run;
    run.add({.phase = Phase::kBackward,
             .scope = "fc",
             .slot = "grad_unclipped:weight",
             .values = {before, 0}});
    run.add(
        {.phase = Phase::kBackward, .scope = "fc", .slot = "grad:weight", .values = {after, 0}});
    return run;
  };
  const DiffResult result = compared(run_of(4, 1), run_of(4, 0.5F));
  CHECK(where(result) == Where{0, Phase::kBackward, "fc", "grad:weight"});
  CHECK(result.root->setting ==
        "gradients of norm 4 are clipped to 1 in the baseline, to 0.5 in the candidate; until then "
        "they agree");
  CHECK(compared(run_of(4, 1), run_of(8, 0.5F)).root->setting.empty());
  Run late = run_of(4, 4);
  std::swap(late.items[0], late.items[1]);
  CHECK(
      compared(run_of(4, 1), late).root->setting ==
      "gradients of norm 4 are clipped to 1 in the baseline, behind their use by the optimizer in "
      "the candidate; until then they agree");
  CHECK(compared(run_of(4, 1), run_of(4, 1)).verdict == Verdict::kSame);
}

TEST_CASE("diff: gradients of which one run clips fewer", "[diff][verdict]") {
  const auto run_of = [](size_t clipped, float unclipped = 4) {
    Run run;
    const std::vector<std::string> layers = {"a", "b", "c"};
    for (size_t i = 0; i < clipped; ++i)
      run.add({.phase = Phase::kBackward,
               .scope = layers[i],
               .slot = "grad_unclipped:weight",
               .values = {unclipped, 0}});
    const float norm = 4 * std::sqrt(static_cast<float>(clipped));
    run.add({.phase = Phase::kBackward, .slot = "grad_norm", .values = {norm}});
    for (size_t i = 0; i < layers.size(); ++i)
      run.add({.phase = Phase::kBackward,
               .scope = layers[i],
               .slot = "grad:weight",
               .values = {i < clipped ? 4 / norm : 4, 0}});
    return run;
  };
  const DiffResult result = compared(run_of(3), run_of(1));
  CHECK(where(result) == Where{0, Phase::kBackward, "b", "grad_unclipped:weight"});
  CHECK(result.root->setting ==
        "gradients of 3 of 3 parameters are clipped in the baseline, of 1 of 3 parameters in the "
        "candidate; until then they agree");
  CHECK(
      compared(run_of(2), run_of(3)).root->setting.find("of 3 of 3 parameters in the candidate") !=
      std::string::npos);
  CHECK(compared(run_of(3), run_of(1, 5)).root->setting.empty());  // they part before
}

TEST_CASE("diff: runs whose values are hashed in two ways are never called identical", "[diff]") {
  const Run base = test::training();
  Run old = base;
  old.meta.required_features = 0;
  const DiffResult same = compared(base, old);
  CHECK(same.verdict == Verdict::kIncomplete);
  REQUIRE(same.incomplete.size() == 1);
  CHECK(same.incomplete[0].starts_with("CT-2406 "));
  CHECK_FALSE(same.bits_known);
  CHECK_FALSE(same.first_bit_difference.has_value());
  CHECK(same.carried.count == 0);
  diff::DiffRules exact;
  exact.exact = diff::ExactChoice::kOn;
  CHECK_FALSE(compared(base, old, {}, exact).exact);
  Run wrong = old;
  scale(wrong.at(1, "fc2", "output:0"), 1.01);
  CHECK(where(compared(base, wrong)) == Where{1, Phase::kForward, "fc2", "output:0"});
  const test::TempDir dir;
  base.write(dir / "base.ctrace");
  old.write(dir / "old.ctrace");
  DiffResult result;
  std::string error;
  CHECK_FALSE(diff::run_diff(
      {.base = dir / "base.ctrace", .cand = dir / "base.ctrace", .noise = {dir / "old.ctrace"}},
      nullptr, result, error));
  CHECK(error.find("old.ctrace: its values are hashed in another way") != std::string::npos);
}

TEST_CASE("diff: the size of a step's updates, where the step before was read", "[diff]") {
  Run base = test::training(4);
  for (Item& item : base.items) {  // large enough for a sketch
    if (item.slot != "param:weight") continue;
    const std::vector<float> few = item.values;
    for (int i = 0; i < 3; ++i) item.values.insert(item.values.end(), few.rbegin(), few.rend());
  }
  Run cand = base;
  scale(cand.at(0, "fc1", "grad:weight"), 1.001);  // so that each step differs and is read
  for (uint32_t step = 1; step < 4; ++step) scale(cand.at(step, "fc1", "grad:weight"), 1.001);
  scale(cand.at(2, "fc1", "param:weight"), 3);
  const auto moved = [](Run& run, uint32_t step) {
    double sum = 0;
    for (const char* layer : {"fc1", "fc2"}) {
      const std::vector<float>& after = run.at(step, layer, "param:weight").values;
      const std::vector<float>& before = run.at(step - 1, layer, "param:weight", step == 1).values;
      for (size_t i = 0; i < after.size(); ++i) sum += std::pow(after[i] - before[i], 2);
    }
    return sum;
  };
  const DiffResult result = compared(base, cand);
  REQUIRE(result.summaries.size() == 4);
  for (uint32_t step = 1; step < 4; ++step) {
    CAPTURE(step);
    const diff::StepSummary& summary = result.summaries[step];
    CHECK(summary.base_updates == Approx(moved(base, step)).epsilon(1));
    CHECK(summary.cand_updates == Approx(moved(cand, step)).epsilon(1));
  }
  CHECK(result.summaries[1].base_updates == result.summaries[1].cand_updates);
  CHECK(result.summaries[2].cand_updates > 2 * result.summaries[2].base_updates);

  diff::Updates updates;
  updates.skip_step();
  updates.begin_step();
  CHECK(updates.moved() == std::array<double, 2>{});
}
