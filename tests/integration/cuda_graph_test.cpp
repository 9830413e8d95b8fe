#include "tests/integration/cuda_run.h"

// A program with a CUDA graph, under the real preload library.

namespace convtrace::test {
namespace {

TEST_CASE("cuda graph: every kernel of every replay is in the trace, however it was made") {
  const std::string how = GENERATE("linked", "dlsym", "proc-address");
  CAPTURE(how);
  CudaRun run;
  const ProcessResult result = run.run({"cuda_graphs", how});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out == "all right, 2 nodes\n");
  CHECK(result.err.empty());
  CHECK(run.launches() == std::map<std::string, int>{
                              {"_Z5raisePf", 1 + 5}, {"_Z6doublePf", 1 + 5}, {"cuGraphLaunch", 5}});
  const auto launches = run.records("launch");
  const auto allocs = run.records("alloc");
  const std::map<std::string, std::string> modules = {
      {"_Z5raisePf", "up"}, {"_Z6doublePf", "down"}, {"cuGraphLaunch", "whole"}};
  REQUIRE(launches.size() == 17);
  REQUIRE(allocs.size() == 2);
  for (size_t i = 0; i < launches.size(); ++i) {
    const Json& launch = launches[i];
    CHECK(launch.at("why") == (i < 2 ? "recorded into a graph, not run"
                               : launch.at("kernel") == "cuGraphLaunch" ? "no rule asks for it"
                                                                        : "run by a graph launch"));
    CHECK(launch.at("scope") == modules.at(launch.at("kernel")));
    if (launch.at("kernel") != "_Z6doublePf") continue;
    REQUIRE(launch.at("operands").size() == 1);
    CHECK(launch.at("operands")[0].at("address") == allocs[i < 11 ? 0 : 1].at("address"));
  }
  CHECK(run.records("loss").empty());
}

TEST_CASE("cuda graph: a rule brings what its kernel's buffer holds after each replay") {
  CudaRun run;
  run.with_rules(R"([[rule]]
kernel = "raise*"
outputs = [0]
dtype = "f32")");
  const ProcessResult result = run.run({"cuda_graphs", "proc-address", pause_ms()});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out == "all right, 2 nodes\n");  // nothing of ours in the graph
  const auto values = run.records("stats");
  REQUIRE(values.size() == 5);
  const int expected[] = {2, 6, 14, 15, 16};
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i].at("kernel") == "_Z5raisePf");
    CHECK(values[i].at("scope") == "up");
    CHECK(values[i].at("slot") == "arg:0");
    CHECK(values[i].at("max") == expected[i]);
  }
}

}  // namespace
}  // namespace convtrace::test
