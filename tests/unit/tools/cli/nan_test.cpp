#include <limits>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

using format::Capture;
using format::Phase;
using tools::Json;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Json report_of(const std::string& path, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"show", "--nan", "--json", path});
  const ProcessResult result = convtrace(more);
  CHECK(result.exit_code == 0);
  return Json::parse(result.out);
}

std::string verdict(const std::string& path) { return report_of(path)["verdict"]; }

/// A module whose output is what it is given, in finite numbers.
void forward(TraceBuilder& trace, const std::string& scope, const std::vector<float>& in,
             const std::vector<float>& out) {
  trace.stats({.scope = scope, .slot = "input:0", .capture = Capture::kHash, .values = in})
      .stats({.scope = scope, .slot = "output:0", .values = out});
}

TEST_CASE("show --nan: a module whose inputs are finite gave birth to it", "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(3).stats({.slot = "input:0", .phase = Phase::kData, .values = {1, 2}});
  forward(trace, "h.0", {1, 2}, {3, 400});
  trace.stats({.scope = "h.1", .slot = "param:weight", .values = {7}});
  forward(trace, "h.1", {3, 400}, {kNan, kInf});
  forward(trace, "h.2", {kNan, kInf}, {kNan, kNan});
  trace.close();

  const Json report = report_of(dir / "t.ctrace");
  CHECK(report["birth"]["scope"] == "h.1");
  CHECK(report["birth"]["slot"] == "output:0");
  CHECK(report["birth"]["step"] == 3);
  CHECK(report["birth"]["nan"] == 1);
  CHECK(report["verdict"] == "It was born here: all that it was made of is finite.");
  REQUIRE(report["made_of"].size() == 2);
  CHECK(report["made_of"][0]["slot"] == "input:0");
  CHECK(report["made_of"][0]["value"]["scope"] == "h.0");
  CHECK(report["made_of"][1]["slot"] == "param:weight");
  REQUIRE(report["before"].size() == 3);
  CHECK(report["before"][2]["slot"] == "param:weight");

  const std::string text = convtrace({"show", "--nan", dir / "t.ctrace"}).out;
  CHECK(text.starts_with(
      "First NaN or infinity: step 3 forward h.1 output:0: 1 NaN, 1 infinite of 2 elements (f32)"));
  CHECK(text.find("input:0: finite, up to 400 (forward h.0 output:0)") != std::string::npos);
}

TEST_CASE("show --nan: behind steps without values the parameters may have brought it",
          "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(110);
  forward(trace, "embed", {1, 2}, {3, 4});
  trace.stats(
      {.scope = "embed", .slot = "param:weight", .phase = Phase::kOptimizer, .values = {7}});
  trace.step(120).stats({.slot = "input:0", .phase = Phase::kData, .values = {1, 2}});
  forward(trace, "embed", {1, 2}, {kNan, 1});
  trace.close();
  const Json report = report_of(dir / "t.ctrace");
  CHECK(report["values_missing_since_step"] == 110);
  CHECK(report["verdict"] ==
        "Its step is the first with values since step 110: it was born here, or in a step between, "
        "which left it in the parameters.");
  for (const Json& one : report["made_of"]) CHECK(one["slot"] != "param:weight");
}

TEST_CASE("show --nan: what is between modules is not blamed on the module", "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(0);
  forward(trace, "h.0", {1, 2}, {3, 4});
  forward(trace, "h.1", {3, 5}, {kNan, 1});  // changed by something that is no module
  trace.close();
  CHECK(verdict(dir / "t.ctrace")
            .starts_with("It was born here, or between the modules: where its "
                         "input:0"));
}

TEST_CASE("show --nan: data, gradients, weights and optimizer", "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder(dir / "data.ctrace")
      .step(0)
      .stats({.slot = "input:0", .phase = Phase::kData, .values = {1, kInf}})
      .close();
  CHECK(verdict(dir / "data.ctrace").starts_with("It came with the data"));

  const StatsSpec fine{
      .scope = "h.1", .slot = "grad_output:0", .phase = Phase::kBackward, .values = {1}};
  StatsSpec bad = fine;
  bad.scope = "h.0";
  bad.values = {kNan};
  TraceBuilder gradient(dir / "gradient.ctrace");
  gradient.step(0);
  const format::ValueId taken{.storage = 7, .generation = 1};
  gradient.stats({.scope = "h.0", .slot = "output:0", .value = taken, .values = {5}})
      .stats({.scope = "h.1", .slot = "input:0", .value = taken, .values = {5}})
      .stats(fine)
      .stats(bad)
      .close();
  const Json made = report_of(dir / "gradient.ctrace");
  CHECK(std::string(made["verdict"])
            .starts_with("It was made by the backward of module h.1, received by module h.0 as "
                         "grad_output:0: it took the value in the forward pass, as input:0"));
  CHECK(made["birth"]["scope"] == "h.0");
  CHECK(made["made_by"]["place"]["scope"] == "h.1");
  CHECK(made["made_by"]["likely"] == false);
  CHECK(convtrace({"show", "--nan", dir / "gradient.ctrace"})
            .out.starts_with("First NaN or infinity: step 0 backward, made by the backward of "
                             "module h.1, received by backward h.0 grad_output:0: 1 NaN"));

  bad.scope = "h.1";
  bad.slot = "grad:weight";
  TraceBuilder(dir / "weight.ctrace").step(0).stats(fine).stats(bad).close();
  const Json weight = report_of(dir / "weight.ctrace");
  CHECK(weight["made_of"][0]["slot"] == "grad_output:0");

  StatsSpec grad = bad, updated = bad;
  grad.values = {2};
  updated.slot = "param:weight";
  updated.phase = Phase::kOptimizer;
  TraceBuilder(dir / "param.ctrace").step(0).stats(grad).stats(updated).close();
  const Json param = report_of(dir / "param.ctrace");
  CHECK(param["verdict"] == "It was born here: all that it was made of is finite.");
  CHECK(param["made_of"][0]["slot"] == "grad:weight");
}

TEST_CASE("show --nan: the first one with a consequence; an earlier one without is mentioned",
          "[cli][show][nan]") {
  const TempDir dir;
  const auto write = [&](const char* name, bool reaches_loss) {
    TraceBuilder trace(dir / name);
    for (const uint32_t step : {0U, 1U, 2U, 3U, 4U}) {
      trace.step(step).stats({.slot = "input:0", .capture = Capture::kHash, .values = {1}});
      forward(trace, "mask", {1}, {step == 1 ? kNan : 2});
      trace.stats({.values = {3}});  // the root module's output: what was masked is replaced
      trace.stats({.slot = "loss",
                   .phase = Phase::kLoss,
                   .values = {reaches_loss && step == 3 ? kNan : 4}});
    }
    trace.close();
    return report_of(dir / name);
  };
  const Json harmless = write("harmless.ctrace", false);
  CHECK(harmless["birth"]["scope"] == "mask");
  CHECK(harmless["birth"]["step"] == 1);
  CHECK(harmless["reaches"].is_null());
  CHECK(convtrace({"show", "--nan", dir / "harmless.ctrace"}).out.find("\nIt goes no further: ") !=
        std::string::npos);

  const Json real = write("real.ctrace", true);
  CHECK(real["birth"]["slot"] == "loss");
  CHECK(real["birth"]["step"] == 3);
  CHECK(real["harmless"]["scope"] == "mask");
  CHECK(real["harmless"]["step"] == 1);
  CHECK(real["before"].size() > 0);
  CHECK(convtrace({"show", "--nan", dir / "real.ctrace"})
            .out.find("\nThat of step 1 forward mask output:0 before it goes no further.\n") !=
        std::string::npos);
}

TEST_CASE("show --nan: masks of negative infinities are no birth; a clean trace says so",
          "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder(dir / "t.ctrace").step(0).stats({.values = {0, -kInf}}).close();
  const Json report = report_of(dir / "t.ctrace");
  CHECK(report["birth"].is_null());
  CHECK(report["searched"] == 1);
  CHECK(convtrace({"show", "--nan", dir / "t.ctrace"}).out ==
        "No NaN, and no infinity that is not a mask, among 1 value with statistics.\n");
}

TEST_CASE(
    "show --nan: a gradient of negative infinities alone, its file and line, what to run next",
    "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(2).told("head", "class", "model.Root").told("head", "forward", "model.py:5");
  trace.told("head", "call", "train.py:12");
  trace.stats(
      {.scope = "head", .slot = "grad_output:0", .phase = Phase::kBackward, .values = {1, 1}});
  trace.stats(
      {.scope = "head", .slot = "grad:p", .phase = Phase::kBackward, .values = {-kInf, -kInf}});
  trace.close();
  const Json report = report_of(dir / "t.ctrace");
  CHECK(report["birth"]["slot"] == "grad:p");
  CHECK(report["code"] == "Its code: module head (Root, model.py:5, called at train.py:12)");
  CHECK(report["next"].get<std::string>().find("--ops head --steps 2 -- ") != std::string::npos);
  const std::string text = convtrace({"show", "--nan", dir / "t.ctrace"}).out;
  CHECK(text.find("\nIts code: module head (Root, model.py:5, called at train.py:12)\n") !=
        std::string::npos);
  CHECK(text.find("\nnext: convtrace run --output ops.ctrace --ops head --steps 2 -- ") !=
        std::string::npos);
}

TEST_CASE("show --nan: of the root module and of a loss all operations are to be recorded",
          "[cli][show][nan]") {
  const auto next_of = [](const char* slot, Phase phase, bool with_ops) {
    const TempDir dir;
    TraceBuilder trace(dir / "t.ctrace");
    format::TraceMeta meta;
    if (with_ops) meta.facts.emplace_back("setting.CONVTRACE_OPS", "*");
    trace.meta(meta);
    trace.step(3).stats({.scope = "fc", .slot = "output:0", .values = {1, 1}});
    trace.stats({.slot = slot, .phase = phase, .values = {kNan, 1}});
    trace.close();
    return report_of(dir / "t.ctrace")["next"].get<std::string>();
  };
  for (const bool is_loss : {true, false}) {
    const char* slot = is_loss ? "loss" : "output:0";
    const Phase phase = is_loss ? Phase::kLoss : Phase::kForward;
    CHECK(next_of(slot, phase, false).find("--ops '*' --steps 3 -- ") != std::string::npos);
    CHECK(next_of(slot, phase, true).starts_with("convtrace check "));
  }
}

TEST_CASE("show --nan: only the last twenty values are kept, and early signs once a place",
          "[cli][show][nan]") {
  const TempDir dir;
  TraceBuilder trace(dir / "t.ctrace");
  for (uint32_t step = 0; step < 30; ++step) {
    format::TensorStats high;
    high.dtype = format::DType::kF16;
    high.stats.count = 100;
    high.stats.amax = format::Scalar::f64(step < 10 ? 100 : 50000);
    high.stats.saturated = step < 20 ? 0 : 2;
    high.stats.subnormal = step < 29 ? 0 : 50;
    trace.step(step).event(high);
  }
  trace.stats({.slot = "output:1", .values = {kNan}}).close();
  const Json report = report_of(dir / "t.ctrace");
  CHECK(report["before"].size() == 20);
  CHECK(report["before"][0]["step"] == 10);
  REQUIRE(report["warnings"].size() == 3);
  CHECK(report["warnings"][0]["text"] == "up to 50000, near the largest value of f16");
  CHECK(report["warnings"][0]["value"]["step"] == 10);
  CHECK(report["warnings"][1]["text"] == "2 elements at the largest value of f16");
  CHECK(report["warnings"][2]["text"] == "50 elements of 100 subnormal");
  CHECK(report_of(dir / "t.ctrace", {"--steps", "0-3"})["birth"].is_null());
}

TEST_CASE("show --nan: who had its memory before", "[cli][show][nan]") {
  const TempDir dir;
  const MemorySpec first{.address = 4096, .bytes = 512, .generation = 1};
  const MemorySpec second{.address = 4096, .bytes = 256, .generation = 2};
  TraceBuilder(dir / "t.ctrace")
      .step(0)
      .alloc(first)
      .stats({.scope = "h.0", .value = {1, 0, 1, 0}, .address = 4096, .values = {1, 2}})
      .free(first)
      .alloc(second)
      .stats({.scope = "h.1", .value = {2, 0, 2, 0}, .address = 4096, .values = {kNan, 2}})
      .close();
  const Json former = report_of(dir / "t.ctrace")["former_owner"];
  CHECK(former["generation"] == 1);
  CHECK(former["value"]["scope"] == "h.0");
  CHECK(former["freed_seq"].is_number());
  CHECK(convtrace({"show", "--nan", dir / "t.ctrace"})
            .out.find("Its memory belonged to step 0 forward h.0 output:0 before") !=
        std::string::npos);
}

}  // namespace
}  // namespace convtrace::test
