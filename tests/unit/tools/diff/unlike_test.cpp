// Runs that do not look alike: renamed, inserted, fused, reordered.

#include <algorithm>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/report/reports.h"

namespace {

using namespace convtrace;
using diff::Class;
using diff::DiffResult;
using diff::MatchedBy;
using diff::Verdict;
using format::Phase;
using test::compared;
using test::count;
using test::Run;
using test::scale;
using test::where;
using test::Where;

/// Every module below a wrapper, as another framework version or DDP puts it.
Run wrapped(Run run) {
  for (test::Item& item : run.items)
    item.scope = item.scope.empty() ? "model" : "model." + item.scope;
  return run;
}

/// A list of `count` equal layers with weights and outputs of their own.
Run layers(uint32_t count, uint32_t left_out = UINT32_MAX) {
  Run run;
  uint32_t number = 0;
  for (const Phase phase : {Phase::kData, Phase::kForward}) {
    number = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (i == left_out) continue;
      const std::string scope = "net." + std::to_string(number++);
      const auto value = static_cast<float>(i + 1);
      const bool weight = phase == Phase::kData;  // all weights come first
      run.add({.phase = Phase::kForward,
               .scope = scope,
               .slot = weight ? "param:weight" : "output:0",
               .values = {value, weight ? 2.0F : 3.0F, value * value}});
    }
  }
  return run;
}

/// A raw kernel's result in fc1.
test::Item kernel(const char* name, const char* slot, std::vector<float> values) {
  return {.scope = "fc1", .slot = slot, .kernel = name, .values = std::move(values)};
}

void check_both_ways(const Run& base, const Run& cand, MatchedBy how) {
  const DiffResult there = compared(base, cand), back = compared(cand, base);
  REQUIRE(there.root.has_value());
  REQUIRE(back.root.has_value());
  CHECK(there.root->record.how == how);
  CHECK(back.root->record.scope == there.root->record.cand_scope);
  CHECK(back.root->record.slot == there.root->record.cand_slot);
  CHECK(there.counts == back.counts);
}

}  // namespace

TEST_CASE("unlike: a wrapper around every module hides nothing", "[diff][align]") {
  Run cand = wrapped(test::training());
  const DiffResult same = compared(test::training(), cand);
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kUnmatched) == 0);
  CHECK(same.launches == 4);
  CHECK(same.renamed.size() == 3);

  scale(cand.at(1, "model.fc2", "output:0"), 2);
  const DiffResult result = compared(test::training(), cand);
  CHECK(where(result) == Where{1, Phase::kForward, "fc2", "output:0"});
  CHECK(result.root->record.cand_scope == "model.fc2");
  CHECK(result.root->record.confidence < 1);
  check_both_ways(test::training(), cand, MatchedBy::kRenamedModule);
}

TEST_CASE("unlike: a layer inserted into a numbered list shifts the others", "[diff][align]") {
  const Run base = layers(6, 2);  // without the layer that the candidate has
  Run cand = layers(6);
  const DiffResult same = compared(base, cand);
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kIdentical) == 10);
  CHECK(count(same, Class::kUnmatched) == 2);

  scale(cand.at(0, "net.4", "output:0"), 2);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{0, Phase::kForward, "net.3", "output:0"});
  CHECK(result.root->record.cand_scope == "net.4");
  CHECK(result.root->one_sided_before.first.scope == "net.2");
  check_both_ways(base, cand, MatchedBy::kRenamedModule);
}

TEST_CASE("unlike: what the user says of names comes before any guess", "[diff][align]") {
  const Run base = layers(4), cand = layers(4);
  diff::DiffRules rules;
  rules.renames = {{"net.0", "net.1"}, {"net.1", "net.0"}};
  const DiffResult result = compared(base, cand, {}, rules);
  CHECK(where(result) == Where{0, Phase::kForward, "net.0", "param:weight"});
  CHECK(result.root->record.cand_scope == "net.1");
}

TEST_CASE("unlike: another kernel library is compared by its place", "[diff][align]") {
  Run base = test::training(), cand = test::training();
  base.add(kernel("ampere_gemm", "arg:2", {1, 2, 3}));
  cand.add(kernel("cutlass_gemm", "arg:4", {1, 2, 3}));
  for (Run* run : {&base, &cand}) run->items.back().step = 1;
  CHECK(count(compared(base, cand), Class::kUnmatched) == 0);
  scale(cand.items.back(), 2);
  CHECK(where(compared(base, cand)) == Where{1, Phase::kForward, "fc1", "arg:2"});
  check_both_ways(base, cand, MatchedBy::kSequence);
}

TEST_CASE("unlike: a fused region is joined at its end, and never blamed by a guess",
          "[diff][align]") {
  Run base = test::training(), cand = test::training();
  base.add(kernel("add", "arg:1", {1, 2, 3}));
  base.add(kernel("relu", "arg:1", {4, 5, 6}));
  cand.add(kernel("add_relu", "arg:2", {4, 5, 6}));
  for (Run* run : {&base, &cand}) {
    for (test::Item& item : run->items) {
      if (!item.kernel.empty() && item.kind == test::Item::Kind::kValue) item.step = 1;
    }
  }
  DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kUnmatched) == 1);
  cand.items.back().values = {7, 7, 7};  // the end of another region, for all we know
  result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kUnmatched) == 3);
  // Nor does it make rounding behind it a fault.
  for (Run* run : {&base, &cand}) {
    const float other = run == &cand ? 1.0000001F : 1;
    run->add({.step = 1,
              .phase = Phase::kBackward,
              .scope = "fc1",
              .slot = "grad:weight",
              .values = {other, 2, 3}});
    run->add({.step = 1,
              .phase = Phase::kOptimizer,
              .scope = "fc1",
              .slot = "param:weight",
              .values = {other, 5, 6}});
  }
  result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kSuspicious) == 1);
}

TEST_CASE("unlike: independent launches in another order are the same", "[diff][align]") {
  Run base = test::training(), cand = test::training();
  for (const float v : {1.0F, 2.0F, 3.0F}) base.add(kernel("copy", "arg:1", {v, v}));
  for (const float v : {3.0F, 1.0F, 2.0F}) cand.add(kernel("copy", "arg:1", {v, v}));
  const DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kIdentical) == result.values);
  // A value that no launch of the other run has is still found.
  cand.items.back().values = {9, 9};
  CHECK(count(compared(base, cand), Class::kDiverged) == 1);
  check_both_ways(base, cand, MatchedBy::kOccurrence);
}

namespace {

/// A training run whose fc1 launches one kernel on two streams, three times each: `turns` says on
/// which. What each launch makes depends on its stream alone, and rounds by `error`.
Run streams(const std::string& turns, uint64_t first_handle, double error) {
  Run run = test::training();
  float made[2] = {1, 100};
  for (const char turn : turns) {
    const size_t stream = turn == 'b' ? 1 : 0;
    run.add({.kind = test::Item::Kind::kLaunch,
             .step = 1,
             .scope = "fc1",
             .kernel = "copy",
             .stream = first_handle + stream});
    run.add(kernel("copy", "arg:1", {made[stream], 3 * made[stream]})).step = 1;
    test::scale(run.items.back(), 1 + error * made[stream]);
    made[stream] += 1;
  }
  return run;
}

}  // namespace

TEST_CASE("unlike: two streams take turns as they like, beside rounding, too", "[diff][align]") {
  for (const double error : {0.0, 1e-8}) {
    const Run base = streams("ababab", 0x7f00, 0);
    Run cand = streams("bbabaa", 0x5500, error);
    CAPTURE(error);
    const DiffResult same = compared(base, cand);
    CHECK(same.verdict == Verdict::kSame);
    CHECK(count(same, Class::kUnmatched) == 0);
    CHECK(count(same, Class::kIdentical) + count(same, Class::kWithinNoise) == same.values);
    CHECK(same.launches == 10);
    CHECK(compared(cand, base).counts == same.counts);
    // One wrong value on one stream: it alone is named, not what took another turn.
    cand.at(1, "fc1", "arg:1", 2).values = {1.5F, 3};
    const DiffResult result = compared(base, cand);
    CHECK(where(result) == Where{1, Phase::kForward, "fc1", "arg:1"});
    CHECK(result.root->record.base.samples.front() == 1);
    CHECK(result.root->record.cand.samples.front() == 1.5);
    CHECK(count(result, Class::kDiverged) == 1);
    check_both_ways(base, cand, MatchedBy::kStableKey);
  }
}

TEST_CASE("unlike: thousands of launches of one value are not searched for partners",
          "[diff][align]") {
  Run base, cand;
  for (int i = 0; i < 20000; ++i) {
    base.add(kernel("fill", "arg:1", {1, 1}));
    cand.add(kernel("fill", "arg:1", {1, i == 7 ? 2.0F : 1.0000001F}));
  }
  const DiffResult result = compared(base, cand);
  CHECK(count(result, Class::kDiverged) == 1);
  CHECK(count(result, Class::kUnmatched) == 0);
}

TEST_CASE("unlike: one module under another name is found by what it holds", "[diff][align]") {
  const Run base = test::training();
  Run cand = base;
  for (test::Item& item : cand.items) {
    if (item.scope == "fc2") item.scope = "head.proj";
  }
  const DiffResult same = compared(base, cand);
  CHECK(same.verdict == Verdict::kSame);
  CHECK(count(same, Class::kIdentical) == same.values);
  REQUIRE(same.renamed.size() == 1);
  CHECK(same.renamed[0].base == "fc2");
  CHECK(same.renamed[0].cand == "head.proj");
  scale(cand.at(1, "head.proj", "grad:weight"), 2);
  CHECK(where(compared(base, cand)) == Where{1, Phase::kBackward, "fc2", "grad:weight"});
  check_both_ways(base, cand, MatchedBy::kRenamedModule);
}

TEST_CASE("unlike: a step that one run lacks is passed over, and those after it are compared",
          "[diff][align]") {
  Run base = test::training(4), cand = base;
  std::erase_if(cand.items, [](const test::Item& item) { return item.step == 1; });
  const DiffResult same = compared(base, cand);
  CHECK(same.verdict == Verdict::kIncomplete);
  CHECK(same.steps == 3);
  CHECK(count(same, Class::kUnmatched) == 14);
  CHECK(same.incomplete == std::vector<std::string>{
                               "CT-2402 candidate: has nothing of 1 step that the other run has"});
  scale(cand.at(2, "fc1", "output:0", 1), 2);
  CHECK(where(compared(base, cand)) == Where{2, Phase::kForward, "fc1", "output:0"});
  check_both_ways(base, cand, MatchedBy::kStableKey);
}

TEST_CASE("unlike: other numbers of launches stand in no value's way", "[diff][align]") {
  const Run base = test::training();
  Run cand = base;
  for (int i = 0; i < 7; ++i) {  // one kernel split into several, and a new one
    cand.add({.kind = test::Item::Kind::kLaunch, .step = 1, .scope = "fc1", .kernel = "gemm"});
    cand.add({.kind = test::Item::Kind::kLaunch, .step = 1, .scope = "fc1", .kernel = "reduce"});
  }
  const DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(result.launches == 4);
  CHECK(count(result, Class::kIdentical) == result.values);
  CHECK(compared(cand, base).launches == 4);
}

TEST_CASE("unlike: a step that has nothing in common does not take minutes", "[diff][align]") {
  Run base, cand;
  for (int i = 0; i < 20000; ++i) {
    const auto value = static_cast<float>(i);
    base.add(kernel(("a" + std::to_string(i)).c_str(), "arg:1", {value}));
    cand.add(kernel(("b" + std::to_string(i)).c_str(), "arg:1", {value + 0.5F}));
  }
  CHECK(compared(base, cand).verdict == Verdict::kNotComparable);
}

namespace {

/// A run whose attn executes the named ops with one operand each, and gives its output to proj.
struct OpCall {
  std::string op;
  std::vector<float> taken, made;
};
Run with_ops(const std::vector<OpCall>& ops, std::vector<float> output = {5, 6, 7, 8}) {
  Run run = test::training();
  for (const auto& [op, taken, made] : ops) {
    run.add({.step = 1, .scope = "attn", .slot = "input:0", .op = op, .values = taken});
    run.add({.step = 1, .scope = "attn", .slot = "output:0", .op = op, .values = made});
  }
  run.add({.step = 1, .scope = "proj", .slot = "input:0", .values = std::move(output)});
  return run;
}

}  // namespace

TEST_CASE("unlike: ops of a module that runs other ops are paired by value alone",
          "[diff][align]") {
  // (q k) c | (q c) k: the op of one name works on other values, of another or of the same size.
  const std::vector<float> q = {1, 2}, other = {9, -3}, wide = {4, 5, 6, 7};
  const Run base = with_ops({{"aten::bmm", q, wide}, {"aten::mul", wide, {2, 3, 4, 5}}});
  for (const auto& scaled : {q, wide, std::vector<float>{8, 1, 1, 2}}) {
    const Run cand = with_ops({{"aten::mul", scaled, other}, {"aten::bmm", other, {2, 3, 4, 5}}});
    const DiffResult same = compared(base, cand);
    CHECK(same.verdict == Verdict::kSame);
    REQUIRE(same.rewritten.size() == 1);
    const tools::Json ops = diff::json_report(same)["other_ops"][0];
    CHECK(ops["scope"] == "attn");
    CHECK(ops["cand"] == tools::Json({"aten::mul", "aten::bmm"}));
    CHECK(same.rewritten[0].scope == "attn");
    CHECK(same.rewritten[0].base == std::vector<std::string>{"aten::bmm", "aten::mul"});
    CHECK(same.rewritten[0].cand == std::vector<std::string>{"aten::mul", "aten::bmm"});
    // A fault shows in the first value that both have as the same thing.
    Run wrong = cand;
    scale(wrong.at(1, "proj", "input:0"), 1.5);
    CHECK(where(compared(base, wrong)) == Where{1, Phase::kForward, "proj", "input:0"});
    CHECK(where(compared(wrong, base)) == Where{1, Phase::kForward, "proj", "input:0"});
  }
}

TEST_CASE("unlike: one sequence of ops is compared op by op", "[diff][align]") {
  const Run base = with_ops({{"aten::mul", {1, 2}, {3, 4}}, {"aten::sum", {3, 4}, {7}}});
  const Run wrong = with_ops({{"aten::mul", {1, 2}, {3, 9}}, {"aten::sum", {3, 9}, {12}}});
  const DiffResult result = compared(base, wrong);
  CHECK(where(result) == Where{1, Phase::kForward, "attn", "output:0"});
  CHECK(result.root->record.op == "aten::mul");
  CHECK(result.rewritten.empty());
}

TEST_CASE("unlike: ops of two names are no pair", "[diff][align]") {
  const Run base = with_ops({{"aten::rsqrt", {4, 16}, {0.5F, 0.25F}}});
  const DiffResult result = compared(base, with_ops({{"aten::sqrt", {4, 16}, {2, 4}}}));
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kUnmatched) == 4);
}
