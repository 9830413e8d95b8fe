
#include "format/model/events.h"
#include "tests/integration/cuda_run.h"

// Beside tools that want the same, and with a CUPTI that fails.

namespace convtrace::test {
namespace {

constexpr int kMany = 200;  // launches of `cuda_life many`

TEST_CASE("cuda others: a CUPTI that refuses is said once, and launches are recorded") {
  const auto [code, name] =
      GENERATE(table<const char*, const char*>({{"39", "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"},
                                                {"41", "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED"},
                                                {"999", "UNKNOWN"}}));
  CudaRun run;
  run.with(std::string("FAKECUDA_CUPTI_RESULT=") + code);
  const ProcessResult result = run.run({"cuda_life", "many"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(count_lines(result.err) == 1);
  if (std::string(code) != "39") CHECK(result.err.find(name) != std::string::npos);
  CHECK(run.records("launch").size() == kMany);
}

TEST_CASE(
    "cuda others: the watch of CPU tensors ends with the first context, and the trace says so") {
  const auto [setting, says] = GENERATE(table<const char*, const char*>(
      {{"auto", "a CUDA context was made"}, {"off", "CONVTRACE_CPU_ALLOC=off"}, {"on", nullptr}}));
  CAPTURE(setting);
  CudaRun run;
  run.with(std::string("CONVTRACE_CPU_ALLOC=") + setting);
  CHECK(run.run({"cuda_life", "many"}).err.empty());
  std::vector<std::string> said;
  for (const Json& record : run.records("diagnostic"))
    if (record.at("site") == format::kCpuMemorySite) said.push_back(record.at("message"));
  REQUIRE(said.size() == (says != nullptr));
  if (says != nullptr) CHECK(said[0].find(says) != std::string::npos);
}

TEST_CASE("cuda others: a CUPTI that is too old is called so") {
  CudaRun run(Fakes::kOldCupti);
  const ProcessResult result = run.run({"cuda_life", "many"});
  CHECK(result.exit_code == 0);
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CT-1401") != std::string::npos);
  CHECK(run.records("launch").size() == kMany);
}

TEST_CASE("cuda others: a CUPTI that ends under us is noticed, and launches are recorded on") {
  const std::string how = GENERATE("FAKECUDA_CUPTI_FATAL_AT", "FAKECUDA_CUPTI_FINALISED_AT");
  CAPTURE(how);
  CudaRun run;
  run.with(how + "=70");
  const ProcessResult result = run.run({"cuda_life", "many"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CT-1404") != std::string::npos);
  CHECK(run.records("launch").size() == kMany);
  CHECK(run.records("alloc").size() < 20);
}

TEST_CASE("cuda others: a tool that the driver loads instead is left in place, and named") {
  CudaRun run;
  run.with("CUDA_INJECTION64_PATH=" + std::string(PROGRAMS) + "/libcuda_other_tool.so");
  const ProcessResult result = run.run({"cuda_life", "many"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "other tool\nall right\n");
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CT-1402 CUPTI is taken by CUPTI for another subscriber") !=
        std::string::npos);
  CHECK(run.records("launch").size() == kMany);
}

TEST_CASE(
    "cuda others: a profiler in the program gets CUPTI from us, and launches are recorded on") {
  const std::string how = GENERATE("linked", "looked-up", "finalized");
  CAPTURE(how);
  CudaRun run;
  const ProcessResult plain = run.run_untraced({"cuda_profiled", how});
  CHECK(plain.out == "the profiler saw 10 launches\n");
  const ProcessResult result = run.run({"cuda_profiled", how});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == plain.out);
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CT-1402") != std::string::npos);
  CHECK(run.records("launch").size() == (how == "finalized" ? 30 : 20));
  CHECK(run.records("alloc").size() == 1);  // from before
}

TEST_CASE("cuda others: a profiler that reads CUPTI's records takes nothing from us") {
  CudaRun run;
  const ProcessResult result = run.run({"cuda_profiled", "activity"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "the profiler saw 10 launches\n");
  CHECK(result.err.empty());
  CHECK(run.records("launch").size() == 20);
}

TEST_CASE("cuda others: an injection that names nothing is no reason not to trace") {
  CudaRun run;
  run.with("CUDA_INJECTION64_PATH=none");  // as job scripts set it
  const ProcessResult result = run.run({"cuda_life", "many"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(result.err.empty());
  CHECK(run.records("launch").size() == kMany);
}

}  // namespace
}  // namespace convtrace::test
