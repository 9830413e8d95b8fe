#include "tools/cli/run/repeat_advice.h"

#include "tests/support/catch.h"

namespace convtrace::test {
namespace {

using tools::Json;

/// A report of two runs that part at a value.
Json parted(const char* phase, const char* slot) {
  return {{"preflight", Json::array()},
          {"first_bit_difference", {{"phase", phase}, {"slot", slot}}}};
}

std::string advice(const Json& report, std::vector<std::pair<std::string, std::string>> facts) {
  format::TraceMeta meta;
  meta.facts = std::move(facts);
  std::string all;
  for (const std::string& line : tools::repeat_advice(report, meta)) all += line + '\n';
  return all;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("repeat: on a GPU the switches that leave it a choice are named, others are not",
          "[cli]") {
  const Json report = parted("forward", "output:0");
  const std::string open = advice(report, {{"device.0.name", "H100"},
                                           {"switch.cudnn_benchmark", "True"},
                                           {"switch.deterministic_algorithms", "False"}});
  CHECK(has(open, "cudnn.benchmark = False"));
  CHECK(has(open, "use_deterministic_algorithms(True)"));
  CHECK(has(open, "CUBLAS_WORKSPACE_CONFIG=:4096:8"));
  CHECK_FALSE(has(open, "set_num_threads"));
  const std::string closed = advice(report, {{"device.0.name", "H100"},
                                             {"switch.cudnn_benchmark", "False"},
                                             {"switch.CUBLAS_WORKSPACE_CONFIG", ":16:8"},
                                             {"switch.deterministic_algorithms", "True"}});
  for (const char* word : {"benchmark", "use_deterministic", "WORKSPACE"})
    CHECK_FALSE(has(closed, word));
  CHECK(has(closed, "generator with a fixed seed"));
}

TEST_CASE("repeat: on a CPU it is threads, not cuDNN", "[cli]") {
  const std::string text =
      advice(parted("backward", "grad:weight"),
             {{"switch.cudnn_benchmark", "True"}, {"switch.num_threads", "8"}});
  CHECK(has(text, "set_num_threads(1)"));
  CHECK_FALSE(has(text, "cudnn"));
  CHECK_FALSE(has(advice(parted("backward", "grad:weight"), {{"switch.num_threads", "1"}}),
                  "set_num_threads"));
}

TEST_CASE("repeat: where a computation differs, poison shows memory that nobody wrote", "[cli]") {
  const Json report = parted("forward", "output:0");
  CHECK(has(advice(report, {}), "convtrace run --poison 1 -- CMD"));
  CHECK_FALSE(has(advice(report, {{"setting.CONVTRACE_POISON", "1"}}), "--poison"));
  CHECK_FALSE(has(advice(parted("data", "input:0"), {}), "--poison"));
}

TEST_CASE("repeat: what differs before anything is computed has an origin", "[cli]") {
  CHECK(has(advice(parted("forward", "param:weight"), {}), "the initial weights differ"));
  CHECK(has(advice(parted("data", "input:0"), {}), "PYTHONHASHSEED=0"));
  CHECK_FALSE(
      has(advice(parted("data", "input:0"), {{"switch.PYTHONHASHSEED", "0"}}), "PYTHONHASH"));
  // A parameter behind the optimizer is computed.
  CHECK_FALSE(has(advice(parted("optimizer", "param:weight"), {}), "initial weights"));
}

TEST_CASE("repeat: seeds and switches that differ come first", "[cli]") {
  Json report = parted("forward", "param:weight");
  report["preflight"] = {{{"name", "switch.torch_seed"}, {"base", "1"}, {"cand", "2"}},
                         {{"name", "switch.num_threads"}, {"base", "1"}, {"cand", nullptr}}};
  const std::string text = advice(report, {});
  CHECK(text.starts_with("torch.manual_seed(0) at the start"));
  CHECK(has(text, "(1 | 2)"));
  CHECK(has(text, "set num_threads to one value"));
  CHECK_FALSE(has(text, "initial weights"));
}

TEST_CASE("repeat: a setting of the program that differs is named, and no switch", "[cli]") {
  Json report = parted("optimizer", "param:weight");
  report["facts"] = {{{"kind", "optimizer"},
                      {"name", "lr"},
                      {"base", "0.1"},
                      {"cand", "0.2"},
                      {"configuration", true}},
                     {{"kind", "generator"}, {"name", "python"}, {"configuration", false}}};
  const std::string text = advice(report, {{"switch.num_threads", "8"}});
  CHECK(text == "set lr of the optimizer to one value: it differs (0.1 | 0.2)\n");
}

TEST_CASE("repeat: deterministic algorithms that only warn are named", "[cli]") {
  const auto text = [](const char* warns) {
    return advice(parted("backward", "grad:weight"), {{"device.0.name", "H100"},
                                                      {"switch.deterministic_algorithms", "True"},
                                                      {"switch.deterministic_warn_only", warns}});
  };
  CHECK(has(text("True"), "without warn_only"));
  CHECK_FALSE(has(text("False"), "warn_only"));
}

TEST_CASE("repeat: values of one run alone are said to be that", "[cli]") {
  CHECK(has(advice({{"preflight", Json::array()}, {"first_bit_difference", nullptr}}, {}),
            "in one run only"));
}

}  // namespace convtrace::test
