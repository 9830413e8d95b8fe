#include "tests/support/catch.h"
#include "tests/unit/tools/convtrace/cli.h"

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
  CHECK(info["meta"]["rank"] == 1);
  CHECK(info["meta"]["world_size"] == 2);
  CHECK(info["meta"]["facts"]["version.torch"] == "2.13.0");
  CHECK(info["meta"]["command_line"] == tools::Json::parse(R"(["python", "train.py"])"));
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

TEST_CASE("info --json: a trace without events has no steps", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).close();
  const ProcessResult result = convtrace({"info", "--json", path});
  CHECK(result.exit_code == 0);
  CHECK(tools::Json::parse(result.out)["steps"].is_null());
}

}  // namespace convtrace::test
