// Inputs of another type or shape, with other numbers: a mask that was added and is now a choice.

#include <sstream>

#include "tests/unit/tools/diff_compared.h"
#include "tools/diff/report/report_json.h"
#include "tools/diff/report/report_text.h"

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
                                  "inputs of another type or shape, of which the same was made"));
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

}  // namespace convtrace::test
