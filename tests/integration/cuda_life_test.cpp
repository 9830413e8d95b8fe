#include <sys/wait.h>

#include <csignal>

#include "tests/integration/cuda_run.h"

// How processes end and what they make of themselves, with the driver in use.

namespace convtrace::test {
namespace {

constexpr int kLaunches = 10;  // of one part of cuda_life

uint64_t launches_in(const std::string& trace) {
  return CudaRun::info(trace).at("records").at("launch");
}

TEST_CASE("cuda life: an end that runs exit handlers closes the trace") {
  const std::string end = GENERATE("return", "quick_exit");
  CAPTURE(end);
  CudaRun run;
  const ProcessResult result = run.run({"cuda_life", end});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(CudaRun::info(run.trace()).at("state") == "complete");
  CHECK(launches_in(run.trace()) == kLaunches);
}

TEST_CASE("cuda life: an end that runs none leaves what was older than a second") {
  const std::string end = GENERATE("_exit", "signal");
  CAPTURE(end);
  CudaRun run;
  const ProcessResult plain = run.run_untraced({"cuda_life", end});
  const ProcessResult result = run.run({"cuda_life", end});
  CHECK(result.exit_code == plain.exit_code);
  CHECK(result.signal == plain.signal);
  CHECK(result.out == plain.out);
  CHECK(result.err.empty());
  CHECK(CudaRun::info(run.trace()).at("state") == "unclosed");
  CHECK(launches_in(run.trace()) == kLaunches);
}

TEST_CASE("cuda life: tracing ends before a driver whose handlers are those of cuInit") {
  CudaRun run;
  run.with("FAKECUDA_ENDS_BEFORE_EXIT=1").with_rules(R"([[rule]]
kernel = "count*"
outputs = [0]
dtype = "f32")");
  const ProcessResult result = run.run({"cuda_life", "return"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(result.err.empty());  // where the driver says that CUPTI has a subscriber
  CHECK(CudaRun::info(run.trace()).at("state") == "complete");
  CHECK(launches_in(run.trace()) == kLaunches);
}

TEST_CASE("cuda life: fork before cuInit gives two processes that are traced alike") {
  CudaRun run;
  const ProcessResult result = run.with_traces_by_pid().run({"cuda_life", "fork-before"});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  REQUIRE(run.traces().size() == 2);
  for (const std::string& trace : run.traces()) {
    CHECK(CudaRun::info(trace).at("state") == "complete");
    CHECK(launches_in(trace) == kLaunches);
  }
}

TEST_CASE("cuda life: a child made after cuInit leaves the trace alone") {
  const std::string how = GENERATE("fork-after", "clone", "vfork");
  CAPTURE(how);
  CudaRun run;
  const ProcessResult result = run.with_traces_by_pid().run({"cuda_life", how});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(result.err.empty());
  REQUIRE(run.traces().size() == 1);
  CHECK(CudaRun::info(run.traces()[0]).at("state") == "complete");
  CHECK(launches_in(run.traces()[0]) == (how == "vfork" ? kLaunches : 2 * kLaunches));
}

TEST_CASE("cuda life: a process that becomes another is traced as both") {
  CudaRun run;
  const ProcessResult result = run.with_traces_by_pid().run({"cuda_life", "exec"});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  REQUIRE(run.traces().size() == 2);
  for (const std::string& trace : run.traces()) CHECK(launches_in(trace) == kLaunches);
}

TEST_CASE("cuda life: several contexts, devices and threads are told apart") {
  CudaRun run;
  run.with("FAKECUDA_DEVICES=2").with_rules(R"([[rule]]
kernel = "count*"
outputs = [0]
dtype = "f32")");
  const ProcessResult result = run.run({"cuda_life", "contexts"});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.find("convtrace") == std::string::npos);
  const auto launches = run.records("launch");
  REQUIRE(launches.size() == 4 * kLaunches);
  std::map<std::string, int> by_device;
  std::map<std::string, int> by_thread;
  size_t sampled = 0;
  for (const Json& launch : launches) {
    ++by_device[launch.at("device").dump()];
    ++by_thread[launch.at("thread").dump()];
    if (launch.at("sampled")) ++sampled;
  }
  CHECK(by_device.size() == 2);
  CHECK(by_thread.size() == 4);
  for (const auto& [device, count] : by_device) CHECK(count == 2 * kLaunches);
  for (const auto& [thread, count] : by_thread) CHECK(count == kLaunches);
  // A context is prepared by a helper: what came before it is not sampled, and says so.
  CHECK(run.records("stats").size() == sampled);
}

}  // namespace
}  // namespace convtrace::test
