// What repetitions of the baseline say about a difference.

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using diff::Class;
using diff::DiffResult;
using diff::Verdict;
using test::compared;
using test::count;
using test::Item;
using test::Run;
using test::scale;

}  // namespace

TEST_CASE("diff: what repetitions of the baseline differ by is noise", "[diff][noise]") {
  Run cand = test::training(), repetition = test::training();
  scale(cand.at(1, "", "loss"), 1.001);
  scale(repetition.at(1, "", "loss"), 0.998);
  CHECK(compared(test::training(), cand).verdict == Verdict::kDiverged);
  const DiffResult result = compared(test::training(), cand, {repetition});
  CHECK(result.verdict == Verdict::kSame);
  CHECK(count(result, Class::kWithinNoise) == 1);
  scale(cand.at(1, "", "loss"), 1.1);
  CHECK(compared(test::training(), cand, {repetition}).verdict == Verdict::kDiverged);
}

TEST_CASE("diff: a divergence just outside of the noise asks for more of it", "[diff][noise]") {
  const auto hint = [](double factor) {
    Run cand = test::training(), repetition = test::training();
    scale(cand.at(1, "", "loss"), 1 + factor * 0.002);
    scale(repetition.at(1, "", "loss"), 1.002);
    return diff::rounding_hint(compared(test::training(), cand, {repetition}));
  };
  CHECK(hint(12).find("more of them would tell") != std::string::npos);
  CHECK(hint(20).empty());
}

TEST_CASE("diff: the band of a value is as wide as its repetitions were apart", "[diff][noise]") {
  Run base = test::training(), cand = test::training(), repetition = test::training();
  base.at(1, "", "loss").values = {1};
  repetition.at(1, "", "loss").values = {10};
  cand.at(1, "", "loss").values = {-8};
  CHECK(compared(base, cand, {repetition}).verdict == Verdict::kSame);
  CHECK(count(compared(base, cand, {repetition}), Class::kWithinNoise) == 1);
}

TEST_CASE("diff: noise of a value's family counts where the value itself was quiet",
          "[diff][noise]") {
  Run cand = test::training(), repetition = test::training();
  scale(cand.at(1, "", "loss"), 1.001);
  scale(repetition.at(0, "", "loss"), 0.998);
  CHECK(compared(test::training(), cand, {repetition}).verdict == Verdict::kSame);
}

TEST_CASE("diff: noise of a kernel family counts wherever the kernel runs", "[diff][noise]") {
  const auto run = [](double fc1, double fc2) {
    Run made = test::training();
    for (const char* scope : {"fc1", "fc2"}) {
      Item& item = made.add({.step = 1, .scope = scope, .slot = "arg:0", .kernel = "gemm"});
      item.values = {1, 2, 3};
      scale(item, scope == std::string("fc1") ? fc1 : fc2);
    }
    return made;
  };
  const Run base = run(1, 1), cand = run(1, 1.001);
  CHECK(compared(base, cand).verdict == Verdict::kDiverged);
  CHECK(compared(base, cand, {run(1.0015, 1)}).verdict == Verdict::kSame);
  Run other = run(1, 1);  // a module without a kernel tells nothing of other modules
  scale(other.at(1, "fc1", "output:0"), 1.0015);
  CHECK(compared(base, cand, {other}).verdict == Verdict::kDiverged);
}

TEST_CASE("diff: any number of repetitions widens the band", "[diff][noise]") {
  Run cand = test::training();
  scale(cand.at(1, "", "loss"), 1.01);
  std::vector<Run> noise(3, test::training());
  scale(noise[0].at(1, "", "loss"), 1.0005);
  CHECK(compared(test::training(), cand, noise).verdict == Verdict::kDiverged);
  scale(noise[2].at(1, "", "loss"), 0.98);
  CHECK(compared(test::training(), cand, noise).verdict == Verdict::kSame);
}

TEST_CASE("diff: a run in higher precision says what rounding does", "[diff][noise]") {
  Run cand = test::training(), exact = test::training();
  for (Item& item : exact.items) item.dtype = format::DType::kF64;
  scale(cand.at(1, "", "loss"), 1.001);
  CHECK(compared(test::training(), cand, {exact}).verdict == Verdict::kDiverged);
  scale(exact.at(1, "", "loss"), 0.998);
  CHECK(compared(test::training(), cand, {exact}).verdict == Verdict::kSame);
}
