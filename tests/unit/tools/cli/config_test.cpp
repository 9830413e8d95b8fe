#include "format/settings/controls.h"
#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

struct Converted {
  std::string toml;
  settings::LoadedControls controls;
};

/// What the program prints is what the engine reads.
Converted convert(const std::string& json) {
  const TempDir folder;
  std::ofstream(folder / "dump.json") << json;
  const ProcessResult result = convtrace({"config", "--from-mindspore", folder / "dump.json"});
  REQUIRE(result.exit_code == 0);
  std::ofstream(folder / "ours.toml") << result.out;
  const std::string entry = "CONVTRACE_CONFIG=" + (folder / "ours.toml");
  const char* environment[] = {entry.c_str(), nullptr};
  Converted converted{result.out, settings::load_controls(environment)};
  CAPTURE(result.out);
  CHECK(converted.controls.problems == std::vector<std::string>{});
  return converted;
}

}  // namespace

TEST_CASE("config --from-mindspore: steps, devices, path and all three spellings of a kernel",
          "[cli]") {
  const Converted c = convert(R"json({
    "common_dump_settings": {"dump_mode": 1, "path": "/dumps", "net_name": "ResNet50",
      "iteration": "0|5-8|100-120", "saved_data": "statistic", "input_output": 0,
      "kernels": ["Default/network-WithLossCell/_backbone-ResNet/layer1-Cell/conv1-Conv2d/Conv2D-op12",
                  "conv2d", "name-regex(.+MatMul.+)"],
      "support_device": [0, 1, 7]},
    "e2e_dump_settings": {"enable": true, "trans_flag": true}})json");
  const settings::Settings& s = c.controls.settings;
  CHECK(s.steps.steps_text() == "0|5-8|100-120");
  CHECK(s.ranks.ranks_text() == "0,1,7");
  CHECK(s.output == "/dumps/%h-%r-%p.ctrace");
  CHECK(s.mode == settings::Mode::kStats);
  REQUIRE(c.controls.rules.size() == 3);
  CHECK(c.controls.rules[0].scope->matches("model.layer1.conv1"));
  CHECK(c.controls.rules[1].kernel->matches("void implicit_CONV2D_fprop()"));
  CHECK(c.controls.rules[2].kernel->matches("a MatMul kernel"));
  CHECK(c.controls.rules[2].outputs_auto);
  for (const char* left_out :
       {"# net_name has no meaning here", "# trans_flag has no meaning here", "# input_output: "})
    CHECK(c.toml.find(left_out) != std::string::npos);
}

TEST_CASE("config --from-mindspore: tensors of everything need all, and are said to be much",
          "[cli]") {
  const Converted c = convert(R"({"common_dump_settings": {"dump_mode": 0, "iteration": "all"}})");
  CHECK(c.controls.settings.mode == settings::Mode::kSnapshot);
  CHECK(c.controls.settings.all);
  CHECK(c.toml.find("# every value of every step") != std::string::npos);
}

TEST_CASE("config --from-mindspore: overflow modes are a flight recorder, which stores no tensors",
          "[cli]") {
  const std::string mode = GENERATE("3", "4");
  const Converted c = convert(
      R"({"common_dump_settings": {"saved_data": "tensor", "op_debug_mode": )" + mode + "}}");
  CHECK(c.controls.settings.ring.on(settings::Trigger::kNan));
  CHECK_FALSE(c.controls.settings.ring.on(settings::Trigger::kAlias));
  CHECK(c.controls.settings.mode == settings::Mode::kStats);
}

TEST_CASE("config --from-mindspore: samples, a dump that is off, set_dump", "[cli]") {
  const Converted c =
      convert(R"({"common_dump_settings": {"dump_mode": 2, "saved_data": "statistic",
    "sample_mode": 1, "sample_num": 99999}, "e2e_dump_settings": {"enable": false}})");
  CHECK(c.controls.settings.samples == 4096);
  CHECK_FALSE(c.controls.settings.enabled);
  CHECK(c.toml.find("# dump_mode 2") != std::string::npos);
}

TEST_CASE("config --from-mindspore: slips of type are named, and never ask for everything",
          "[cli]") {
  const Converted c = convert(R"({"common_dump_settings": {"dump_mode": 1, "iteration": 0,
    "kernels": "Default/Conv-op12", "saved_data": ["tensor"], "path": 3, "support_device": 0,
    "enable": "false"}})");
  for (const char* field :
       {"iteration: 0 is no text", "saved_data: [\"tensor\"] is no text", "path: 3 is no text",
        "support_device: it is no list", "kernels: it is no list", "enable: it is not true"})
    CHECK(c.toml.find(field) != std::string::npos);
  CHECK(c.controls.settings.mode == settings::Mode::kStats);
  CHECK_FALSE(c.controls.settings.all);
  CHECK(c.controls.settings.enabled);

  const Converted items = convert(R"({"common_dump_settings": {"dump_mode": 1,
    "kernels": ["", 4, "conv2d"], "support_device": [0, "x"]}})");
  CHECK(items.controls.rules.size() == 1);
  for (const char* item :
       {"kernels: \"\" is no name", "kernels: 4 is no name", "support_device: \"x\" is no device"})
    CHECK(items.toml.find(item) != std::string::npos);

  const std::string odd =
      convert(R"({"common_dump_settings": {"dump_mode": 7, "saved_data": "statistic"}})").toml;
  CHECK(odd.find("dump_mode: 7 is not known") != std::string::npos);
  const std::string all = convert(R"({"common_dump_settings": {"dump_mode": 0, "kernels": ["a"],
    "saved_data": "statistic"}})")
                              .toml;
  CHECK(all.find("dump_mode 0 takes everything, so the list is left out") != std::string::npos);
}

TEST_CASE("config --from-mindspore: what is not understood is named and left out", "[cli]") {
  const Converted c = convert(R"json({"common_dump_settings": {"dump_mode": 1, "iteratoin": "3",
    "iteration": "all|x", "saved_data": "statistics", "input_output": 2,
    "kernels": ["name-regex(MatMul[)", "name-regex(Conv.*)"]}})json");
  CHECK(c.controls.rules.size() == 1);
  for (const char* said :
       {"# iteratoin is not a field", "# iteration: all|x is not a list of steps; left out",
        "# saved_data: statistics is not known", "# this is no regular expression here"}) {
    CAPTURE(said);
    CHECK(c.toml.find(said) != std::string::npos);
  }
  CHECK(c.toml.find("# input_output") == std::string::npos);
}

TEST_CASE("config --from-mindspore: numbers in quotes, and what cannot be converted", "[cli]") {
  const Converted c = convert(R"json({"common_dump_settings": {"dump_mode": "1", "path": "/a%b",
    "saved_data": "tensor", "support_device": ["0", 3], "input_output": "x",
    "kernels": ["Default/Conv-op12", "name-regex(Default/.+)", "name-regex((?i)conv)"]}})json");
  CHECK(c.controls.settings.output == "/a%%b/%h-%r-%p.ctrace");
  CHECK(c.controls.settings.ranks.ranks_text() == "0,3");
  CHECK(c.controls.settings.mode == settings::Mode::kStats);
  CHECK(c.controls.rules.empty());
  for (const char* said :
       {"# input_output: it is no number", "# kernels of CUDA have no such paths",
        "# this is no regular expression", "# no kernel of the list"}) {
    CAPTURE(said);
    CHECK(c.toml.find(said) != std::string::npos);
  }
  CHECK(convert(R"({"common_dump_settings": {"support_device": ["x"]}})")
            .controls.settings.ranks.ranks_text() == "all");
}

TEST_CASE("config: what is no dump configuration is one line", "[cli]") {
  const TempDir folder;
  std::ofstream(folder / "list.json") << "[1";
  std::ofstream(folder / "other.json") << "{\"a\": {}}";
  for (const std::string& path :
       {folder / "list.json", folder / "missing.json", folder / "other.json", folder / ""}) {
    const ProcessResult result = convtrace({"config", "--from-mindspore", path});
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK(convtrace({"config"}).exit_code == 2);
}

}  // namespace convtrace::test
