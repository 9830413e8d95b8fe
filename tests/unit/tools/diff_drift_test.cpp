// Differences that are no larger than those of what a value was made of, and those that jump.

#include "tests/unit/tools/diff_compared.h"
#include "tools/diff/report_parts.h"

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
using test::where;
using test::Where;

std::vector<float> ones(double error = 0) {
  return std::vector<float>(16, static_cast<float>(1 + error));
}

Item value(uint32_t step, const char* scope, const char* slot, double error, uint64_t storage) {
  return {.step = step, .scope = scope, .slot = slot, .values = ones(error), .storage = storage};
}

Item taken(uint32_t step, const char* scope, double error, uint64_t storage) {
  Item item = value(step, scope, "input:0", error, storage);
  item.capture = format::Capture::kHash;
  return item;
}

/// a gives its output to b, and b makes another of it: both off by so much.
void add_chain(Run& run, uint32_t step, double first, double second, bool known = true) {
  const uint64_t storage = 10 * step + 1;
  run.add(taken(step, "a", 0, 0));
  run.add(value(step, "a", "output:0", first, storage));
  run.add(taken(step, "b", first, known ? storage : 0));
  run.add(value(step, "b", "output:0", second, storage + 1));
}

Run chain(double first, double second, bool known = true) {
  Run run;
  add_chain(run, 0, first, second, known);
  return run;
}

/// A bias whose gradient is nothing but rounding moves by `move`; in the next step the outputs of
/// its module and of another one are off by so much.
Run with_bias(double gradient, double move, double own, double other) {
  Run run;
  const auto bias = [&](Phase phase, const char* slot, float from, double by) {
    std::vector<float> values(16, from);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += static_cast<float>(i % 2 == 0 ? by : -by);
    run.add({.phase = phase, .scope = "fc", .slot = slot, .values = values});
  };
  bias(Phase::kForward, "param:bias", 0.05F, 0);
  run.add({.phase = Phase::kBackward, .scope = "fc", .slot = "grad_output:0", .values = ones()});
  bias(Phase::kBackward, "grad:bias", 0, gradient);
  bias(Phase::kOptimizer, "param:bias", 0.05F, move);
  run.add(taken(1, "fc", 0, 0));
  run.add(value(1, "fc", "output:0", own, 0));
  run.add(taken(1, "free", 0, 0));
  run.add(value(1, "free", "output:0", other, 0));
  return run;
}

/// An update of a weight whose gradient differs in its last bits.
Run with_update(float gradient, float move) {
  Run run;
  const auto weight = [&](Phase phase, const char* slot, float item) {
    run.add({.phase = phase, .scope = "fc", .slot = slot, .values = std::vector<float>(16, item)});
  };
  weight(Phase::kForward, "param:weight", 0.5F);
  weight(Phase::kBackward, "grad:weight", gradient);
  weight(Phase::kOptimizer, "param:weight", 0.5F - move);
  return run;
}

}  // namespace

TEST_CASE("drift: an output is as far apart as what it was made of", "[diff][drift]") {
  for (const bool known : {true, false}) {
    CAPTURE(known);
    const DiffResult grown = compared(chain(0, 0), chain(1e-5, 1e-4, known));
    CHECK(grown.verdict == Verdict::kSame);
    CHECK(count(grown, Class::kSuspicious) == 2);
    REQUIRE(grown.carried.count == 1);
    CHECK(grown.carried.first->scope == "b");
    CHECK(grown.carried.largest == Approx(1e-4).epsilon(0.01));
    CHECK(diff::carried_text(grown).find(
              "from step 0, forward, b (call 0), output:0 on 1 value is") == 0);
    CHECK(diff::carried_text(grown).find("within reach of rounding") != std::string::npos);
    // A jump is one, and so is the same difference out of nothing.
    CHECK(where(compared(chain(0, 0), chain(1e-5, 1e-3, known))) ==
          Where{0, Phase::kForward, "b", "output:0"});
    const DiffResult born = compared(chain(0, 0), chain(0, 1e-4, known));
    CHECK(where(born) == Where{0, Phase::kForward, "b", "output:0"});
    CHECK(born.carried.count == 0);
    CHECK(diff::carried_text(born).empty());
  }
}

TEST_CASE("drift: what another module took is not what this one was given", "[diff][drift]") {
  const auto run = [](double error, double last) {
    Run made;
    add_chain(made, 0, error, 0);  // b takes what a made, and is not moved by it
    made.add(taken(0, "c", error, 0));
    made.add(value(0, "c", "output:0", last, 0));
    return made;
  };
  CHECK(where(compared(run(0, 0), run(1e-5, 1e-4))) == Where{0, Phase::kForward, "c", "output:0"});
}

TEST_CASE("drift: a place that took a difference away does not give it out later",
          "[diff][drift]") {
  const auto run = [](double first, double last) {
    Run made;
    for (uint32_t step = 0; step < 3; ++step) {
      add_chain(made, step, first, step == 2 ? last : 0);
    }
    return made;
  };
  CHECK(compared(run(0, 0), run(1e-5, 0)).verdict == Verdict::kSame);
  CHECK(compared(chain(0, 0), chain(1e-5, 1.4e-4)).verdict == Verdict::kSame);
  CHECK(where(compared(run(0, 0), run(1e-5, 1.4e-4))) ==
        Where{2, Phase::kForward, "b", "output:0"});
}

TEST_CASE("drift: parameters explain the outputs of their own module", "[diff][drift]") {
  const Run base = with_bias(1e-9, 1e-3, 0, 0);
  const DiffResult own = compared(base, with_bias(-1e-9, -1e-3, 1e-3, 0));
  CHECK(own.verdict == Verdict::kSame);
  REQUIRE(own.carried.count == 1);
  CHECK(own.carried.first->scope == "fc");
  CHECK(where(compared(base, with_bias(-1e-9, -1e-3, 1e-3, 1e-3))).scope == "free");
  CHECK(where(compared(base, with_bias(-1e-9, -1e-3, 0.2, 0))).scope == "fc");
}

TEST_CASE("drift: beside rounding another update still is the optimizer's fault",
          "[diff][drift][rounding]") {
  const Run base = with_update(0.1F, 1e-3F);
  CHECK(compared(base, with_update(0.1000001F, 1.0001e-3F)).verdict == Verdict::kSame);
  for (const float wrong : {1.1e-3F, 2e-3F, 0.0F}) {
    CAPTURE(wrong);
    CHECK(where(compared(base, with_update(0.1000001F, wrong))) ==
          Where{0, Phase::kOptimizer, "fc", "param:weight"});
  }
}

TEST_CASE("drift: single elements of a gradient may jump, all of it may not", "[diff][drift]") {
  const auto run = [](double loss, double element, double all, size_t elements = 1) {
    Run made;
    made.add({.phase = Phase::kLoss, .slot = "loss", .values = {static_cast<float>(1 + loss)}});
    std::vector<float> gradient(4096, static_cast<float>(1 + all));
    for (size_t i = 0; i < gradient.size(); i += 2) gradient[i] = -gradient[i];
    for (size_t i = 1; i <= elements; ++i)
      gradient[512 * i] += static_cast<float>(element);  // a sample
    made.add({.phase = Phase::kBackward,
              .scope = "a",
              .slot = "grad_output:0",
              .values = std::move(gradient)});
    return made;
  };
  const DiffResult jumped = compared(run(0, 0, 0), run(1e-6, 0.01, 0));
  CHECK(jumped.verdict == Verdict::kSame);
  CHECK(jumped.carried.count == 1);
  const Where gradient{0, Phase::kBackward, "a", "grad_output:0"};
  CHECK(where(compared(run(0, 0, 0), run(1e-6, 1.5, 0))) == gradient);
  CHECK(where(compared(run(0, 0, 0), run(1e-6, 0.012, 0, 4))) == gradient);
  CHECK(where(compared(run(0, 0, 0), run(1e-6, 0, 0.001))) == gradient);
  CHECK(where(compared(run(0, 0, 0), run(0, 0.01, 0))) == gradient);  // out of nothing
}

TEST_CASE("drift: --noise given, the text asks for no more of it", "[diff][drift]") {
  const DiffResult grown = compared(chain(0, 0), chain(1e-5, 1e-4), {chain(0, 0)});
  CHECK(grown.verdict == Verdict::kSame);
  CHECK(diff::carried_text(grown).find("rerun") == std::string::npos);
}

TEST_CASE("drift: a module is not blamed for what those inside of it did", "[diff][root]") {
  const auto run = [](double drifting, double inner) {
    Run made;
    made.add({.phase = Phase::kData, .scope = "", .slot = "input:0", .values = ones()});
    made.add({.scope = "a", .slot = "input:0", .values = ones(drifting)});
    made.add(value(0, "a", "output:0", inner, 0));
    made.add(value(0, "", "output:0", inner, 0));
    return made;
  };
  const DiffResult result = compared(run(0, 0), run(1e-5, 0.5));
  CHECK(where(result) == Where{0, Phase::kForward, "a", "output:0"});
  CHECK(result.root->worst_input == Class::kSuspicious);
}
