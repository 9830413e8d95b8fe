#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {

TEST_CASE("info --json: state, records, losses, steps and meta", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path)
      .rank(1, 2)
      .fact("version.torch", "2.13.0")
      .step(3)
      .stats({.values = {1}})
      .stats({.values = {2}})
      .step(4)
      .launch({})
      .loss(format::LossReason::kQueueFull, 5)
      .loss(format::LossReason::kQueueFull, 2)
      .close();
  const ProcessResult result = convtrace({"info", "--json", path});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const tools::Json info = tools::Json::parse(result.out);
  CHECK(info["state"] == "complete");
  CHECK(info["records"]["stats"] == 2);
  CHECK(info["records"]["launch"] == 1);
  CHECK(info["records"]["finding"] == 0);
  CHECK(info["lost"] == tools::Json::parse(R"({"queue full": 7})"));
  CHECK(info["bytes"] == std::filesystem::file_size(path));
  CHECK(info["steps"] == tools::Json::parse("[3, 4]"));
  REQUIRE(info["step_sums"].size() == 2);
  CHECK(info["step_sums"][0]["step"] == 3);
  CHECK(info["step_sums"][0]["values"] == 2);
  CHECK(info["step_sums"][1]["launches"] == 1);
  CHECK(info["step_sums"][0]["keys"] != info["step_sums"][1]["keys"]);
  CHECK(info["meta"]["rank"] == 1);
  CHECK(info["meta"]["world_size"] == 2);
  CHECK(info["meta"]["facts"]["version.torch"] == "2.13.0");
  CHECK(info["meta"]["command_line"] == tools::Json::parse(R"(["python", "train.py"])"));
}

TEST_CASE("info --json: sizes add up to the file, rates and cost follow from the events", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder trace(path);
  for (uint32_t step = 0; step < 1000; ++step) trace.step(step);  // 1 us apart
  trace.cost(200'000, 5, 7).cost(50'000, 6, 8).close();
  const tools::Json info = tools::Json::parse(convtrace({"info", "--json", path}).out);
  const tools::Json& sizes = info["sizes"];
  CHECK(sizes["events"]["records"] == 1);
  CHECK(sizes["events"]["raw_bytes"] > sizes["events"]["bytes"]);
  CHECK(sizes["meta"]["records"] == 1);
  uint64_t sum = 0;
  for (const auto& size : sizes) sum += size["bytes"].get<uint64_t>();
  CHECK(sum == std::filesystem::file_size(path));
  CHECK(info["seconds"].get<double>() == Approx(1001e-6));
  CHECK(info["events_per_s"].get<double>() == Approx(1002 / 1001e-6));
  CHECK(info["bytes_per_event"].get<double>() == Approx(static_cast<double>(sum) / 1002));
  CHECK(info["cost"]["host_ns"] == 250'000);
  CHECK(info["cost"]["device_ns"] == 11);
  CHECK(info["cost"]["host_fraction"].get<double>() == Approx(0.25).epsilon(0.01));
  const std::string text = convtrace({"info", path}).out;
  CHECK(info["cost"]["overhead"].get<double>() == Approx(250.0 / 751));
  CHECK(text.find("0.00025 s of 0.001 s in the observer's hooks: about 33.3 % more than untraced, "
                  "1.1e-08 s on devices") != std::string::npos);
}

TEST_CASE("info: time on devices that was not measured is not shown", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).step(1).step(2).cost(1000, 0, 7).close();
  const std::string text = convtrace({"info", path}).out;
  CHECK(text.find("in the observer's hooks") != std::string::npos);
  CHECK(text.find("on devices") == std::string::npos);
}

TEST_CASE("info: text names command, steps and versions", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).fact("version.torch", "2.13.0").step(3).stats({.values = {1}}).close();
  const ProcessResult result = convtrace({"info", path});
  CHECK(result.exit_code == 0);
  for (const char* text : {"complete", "python train.py", "3 to 3", "version.torch", "2.13.0"}) {
    CAPTURE(text);
    CHECK(result.out.find(text) != std::string::npos);
  }
}

TEST_CASE("info: one screen, without settings that have their defaults", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path)
      .fact("package.numpy", "2.0")
      .fact("setting.CONVTRACE_MODE", "stats")
      .fact("setting.CONVTRACE_SAMPLES", "64")
      .step(3)
      .stats({.slot = "loss", .phase = format::Phase::kLoss, .values = {2.5}})
      .step(4)
      .stats({.slot = "loss", .phase = format::Phase::kLoss, .values = {1.25}})
      .close();
  const std::string text = convtrace({"info", path}).out;
  const std::string all = convtrace({"info", "--all", path}).out;
  CAPTURE(text);
  CHECK(text.find("2.5 in step 3, 1.25 in step 4") != std::string::npos);
  CHECK(text.find("2 stats, 2 step") != std::string::npos);
  CHECK(text.find("CONVTRACE_SAMPLES  64") != std::string::npos);
  for (const char* fact : {"CONVTRACE_MODE", "package.numpy", "bytes of events"}) {
    CHECK(text.find(fact) == std::string::npos);
    CHECK(all.find(fact) != std::string::npos);
  }
}

TEST_CASE("info --json: a trace without events has no steps", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).close();
  const ProcessResult result = convtrace({"info", "--json", path});
  CHECK(result.exit_code == 0);
  CHECK(tools::Json::parse(result.out)["steps"].is_null());
}

}  // namespace convtrace::test
