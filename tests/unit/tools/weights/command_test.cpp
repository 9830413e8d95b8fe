#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tests/unit/tools/cli/cli.h"
#include "tools/common/json.h"

namespace convtrace::test {
namespace {

using tools::Json;

void write(const std::string& path, float value, bool close = true) {
  TraceBuilder trace(path);
  trace.step(0).stats({.scope = "fc", .slot = "param:weight", .values = {value, 2}});
  if (close) {
    trace.close();
  } else {
    trace.leave_unclosed();
  }
}

TEST_CASE("weights command: exit codes and what people read", "[weights][command]") {
  const TempDir dir;
  write(dir / "a.ctrace", 1);
  write(dir / "same.ctrace", 1);
  write(dir / "other.ctrace", 5);
  write(dir / "open.ctrace", 1, false);
  TraceBuilder(dir / "empty.ctrace").close();
  const ProcessResult same = convtrace({"weights", dir / "a.ctrace", dir / "same.ctrace"});
  CHECK(same.exit_code == 0);
  CHECK(same.out.starts_with("The weights are the same: of 1 parameter 1 equal."));
  const ProcessResult other = convtrace({"weights", dir / "a.ctrace", dir / "other.ctrace"});
  CHECK(other.exit_code == 4);
  CHECK_THAT(other.out, Catch::Contains("differs     fc.weight differs"));
  CHECK(convtrace({"weights", dir / "a.ctrace", dir / "open.ctrace"}).exit_code == 3);
  CHECK(convtrace({"weights", dir / "empty.ctrace", dir / "empty.ctrace"}).exit_code == 3);
  CHECK(convtrace({"weights", dir / "a.ctrace", dir / "none.ctrace"}).exit_code == 2);
  CHECK(convtrace({"weights", dir / "a.ctrace"}).exit_code == 2);
}

TEST_CASE("weights command: JSON, and a map", "[weights][command]") {
  const TempDir dir;
  write(dir / "a.ctrace", 1);
  TraceBuilder(dir / "b.ctrace")
      .step(0)
      .stats({.scope = "model.fc", .slot = "param:weight", .values = {1, 2}})
      .close();
  const auto report = [&dir](std::vector<std::string> more) {
    std::vector<std::string> words{"weights", dir / "a.ctrace", dir / "b.ctrace", "--json", "-"};
    words.insert(words.end(), more.begin(), more.end());
    return convtrace(words);
  };
  const Json unnamed = Json::parse(report({}).out);
  CHECK(unnamed["same"] == false);
  CHECK(unnamed["counts"]["missing"] == 2);
  std::ofstream(dir / "map.toml") << "[modules]\n\"\" = \"model\"\n";
  const Json named = Json::parse(report({"--map", dir / "map.toml"}).out);
  CHECK(named["same"] == true);
  REQUIRE(named["parameters"].size() == 1);
  CHECK(named["parameters"][0]["in_b"] == Json{"model.fc.weight"});
  for (const char* bad : {"[rank]\n0 = 1\n", "[fused]\nqkv = 3\n", "[modules]\na = 1\n", "[fus"}) {
    std::ofstream(dir / "bad.toml") << bad;
    const ProcessResult refused = report({"--map", dir / "bad.toml"});
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, Catch::Contains("bad.toml"));
  }
}

TEST_CASE("weights command: a version is chosen by its step, or is the first",
          "[weights][command]") {
  const TempDir dir;
  TraceBuilder trace(dir / "a.ctrace");
  StatsSpec spec{.scope = "fc", .slot = "param:weight", .values = {1, 2}};
  trace.step(0).stats(spec);
  spec.phase = format::Phase::kOptimizer;
  for (uint32_t step = 0; step < 3; ++step) {
    spec.values[0] += 1;
    trace.step(step).stats(spec);
  }
  trace.close();
  write(dir / "first.ctrace", 1);
  write(dir / "third.ctrace", 3);
  const auto code = [&dir](const char* other, const char* step) {
    return convtrace({"weights", dir / "a.ctrace", dir / other, "--step-a", step}).exit_code;
  };
  CHECK(code("first.ctrace", "start") == 0);
  CHECK(code("third.ctrace", "1") == 0);
  CHECK(code("first.ctrace", "0") == 4);
  CHECK(code("first.ctrace", "-1") == 2);
  const ProcessResult none =
      convtrace({"weights", dir / "a.ctrace", dir / "first.ctrace", "--step-a", "77"});
  CHECK(none.exit_code == 2);
  CHECK_THAT(none.err, Catch::Contains("no weights of step 77; it has those of the start, 0 to 2"));
}

TEST_CASE("weights command: names of a hostile trace are escaped", "[weights][command]") {
  const TempDir dir;
  write(dir / "a.ctrace", 1);
  TraceBuilder(dir / "b.ctrace")
      .step(0)
      .stats({.scope = "\033[31m", .slot = "param:weight", .values = {1, 2}})
      .close();
  const ProcessResult result = convtrace({"weights", dir / "a.ctrace", dir / "b.ctrace"});
  CHECK(result.exit_code == 4);
  CHECK_THAT(result.out, !Catch::Contains("\033"));
}

}  // namespace
}  // namespace convtrace::test
