// What the memory judge says of whole programs, live and from their traces.

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <sstream>

#include "tests/integration/cuda_run.h"

namespace convtrace::test {
namespace {

struct Found {
  int exit_code = 0;
  std::vector<Json> findings;
};

/// @return what `convtrace findings` says of a run, without the number that only a record has.
Found findings(const CudaRun& run, bool replay) {
  std::vector<std::string> command = {std::string(BUILD_FOLDER) + "/bin/convtrace", "findings",
                                      "--json", run.trace()};
  if (replay) command.emplace_back("--replay");
  const ProcessResult result = run_process(command);
  INFO(result.err);
  CHECK(result.err.empty());
  Found found{result.exit_code, {}};
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    found.findings.push_back(Json::parse(line));
    found.findings.back().erase("seq");
  }
  return found;
}

/// Runs a scenario. @return its findings, the same live and replayed.
std::vector<Json> run_scenario(CudaRun& run, std::vector<std::string> arguments, std::string& out) {
  arguments.insert(arguments.begin(), "cuda_alias");
  const ProcessResult result = run.run(arguments);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  out = result.out;
  const Found live = findings(run, false), replayed = findings(run, true);
  CHECK(live.findings == replayed.findings);
  CHECK(live.exit_code == replayed.exit_code);
  size_t said = 0;
  for (size_t at = 0; (at = result.err.find(" finding: ", at)) != std::string::npos; ++at) ++said;
  size_t errors = 0;
  for (const Json& finding : live.findings) errors += finding.at("suppressed") ? 0 : 1;
  CHECK(said == std::min<size_t>(errors, 4));
  CHECK(live.exit_code == (errors == 0 ? 0 : 4));
  return live.findings;
}

std::vector<Json> run_scenario(CudaRun& run, const std::string& name) {
  std::string out;
  return run_scenario(run, {name}, out);
}

}  // namespace

TEST_CASE("cuda alias: a launch that takes freed memory is found") {
  const std::string scenario =
      GENERATE("dangling", "dangling-interior", "dangling-at-step-50", "free-async-before-launch",
               "workspace-moves-after-capture");
  CAPTURE(scenario);
  CudaRun run;
  const std::vector<Json> found = run_scenario(run, scenario);
  REQUIRE(found.size() == 1);
  CHECK(found[0].at("kind") == "use-after-free");
  CHECK(found[0].at("level") == "error");
  CHECK(found[0].at("kernel") == "touch");
  CHECK(found[0].at("slot") == "arg:0");
  CHECK(found[0].at("bytes") == (scenario == "dangling-interior" ? 4096 - 512 : 4096));
}

TEST_CASE("cuda alias: with all stacks, it is told where the memory came from, went, and is used") {
  const std::string scenario =
      GENERATE("dangling-interior", "workspace-moves-after-capture", "missing-record-stream");
  CAPTURE(scenario);
  CudaRun run;
  run.with("CONVTRACE_STACKS=all");
  const std::vector<Json> found = run_scenario(run, scenario);
  REQUIRE(found.size() == 1);
  for (const char* name : {"alloc", "free", "launch"}) {
    CAPTURE(name);
    REQUIRE_FALSE(found[0].at("stacks").at(name).empty());
    const std::string innermost = found[0].at("stacks").at(name)[0];
    CHECK(innermost.find("cuda_alias") != std::string::npos);
  }
  CHECK(found[0].at("stacks").at("alloc") != found[0].at("stacks").at("launch"));
}

TEST_CASE("cuda alias: memory given to a stream that does not wait for another is found") {
  CudaRun run;
  const std::vector<Json> found = run_scenario(run, "missing-record-stream");
  REQUIRE(found.size() == 1);
  CHECK(found[0].at("kind") == "cross-stream-reuse");
  CHECK(found[0].at("level") == "error");
}

TEST_CASE("cuda alias: what correct programs do is no finding") {
  const std::string scenario = GENERATE("record-stream", "wait-before-reuse", "graph-pool",
                                        "stale-words", "end-pointer", "churn");
  CAPTURE(scenario);
  CudaRun run;
  CHECK(run_scenario(run, scenario).empty());
}

TEST_CASE("cuda alias: without CUPTI what is not seen is not judged") {
  const std::string scenario = GENERATE("record-stream", "graph-pool", "missing-record-stream");
  CAPTURE(scenario);
  CudaRun run(Fakes::kNoCupti);
  REQUIRE(run.run({"cuda_alias", scenario}).exit_code == 0);
  CHECK(findings(run, false).findings.empty());
  CHECK(findings(run, true).findings.empty());
}

TEST_CASE("cuda alias: a rule silences a finding, which is still listed") {
  CudaRun run;
  run.with_rules("[[rule]]\nkernel = \"touch\"\nsuppress = true\n");
  const std::vector<Json> found = run_scenario(run, "dangling");
  REQUIRE(found.size() == 1);
  CHECK(found[0].at("suppressed") == true);
}

TEST_CASE("cuda alias: random programs have the findings that they know of") {
  const char* const given = std::getenv("CUDA_ALIAS_SEED");
  const uint64_t seed =
      given == nullptr ? std::random_device()() : std::strtoull(given, nullptr, 0);
  WARN("CUDA_ALIAS_SEED=" << seed);
  for (uint64_t i = 0; i < 6; ++i) {
    CAPTURE(seed + i);
    CudaRun run;
    std::string out;
    std::multiset<std::string> expected, found;  // the tool puts findings of a kind together
    for (const Json& finding : run_scenario(run, {"random", std::to_string(seed + i)}, out)) {
      const uint64_t address = finding.at("address");
      found.insert(finding.at("kind").get<std::string>() + ' ' +
                   finding.at("slot").get<std::string>() + ' ' +
                   std::to_string(address / 4096 * 4096));
    }
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) expected.insert(line);
    CHECK(found == expected);
    CHECK_FALSE(expected.empty());
  }
}

}  // namespace convtrace::test
