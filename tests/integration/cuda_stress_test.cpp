#include <cstdlib>

#include "tests/integration/cuda_run.h"

namespace convtrace::test {
namespace {

// ctest runs it a second time, labelled "long", with a million launches.
TEST_CASE("cuda stress: what 16 threads did is in the trace, to the last launch") {
  const char* asked = getenv("STRESS_LAUNCHES");
  const std::string count = asked == nullptr ? "100000" : asked;
  CudaRun run;
  const ProcessResult result = run.run({"cuda_stress", "16", count});
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  uint64_t launches = 0;
  uint64_t allocs = 0;
  uint64_t frees = 0;
  REQUIRE(sscanf(result.out.c_str(), "launches %lu allocs %lu frees %lu", &launches, &allocs,
                 &frees) == 3);
  CHECK(std::to_string(launches) == count);

  const Json info = CudaRun::info(run.trace());
  CAPTURE(info.at("state").dump(), info.at("lost").dump());
  CHECK(info.at("state") == "complete");
  CHECK(info.at("lost").empty());
  CHECK(info.at("records").at("launch") == launches);
  CHECK(info.at("records").at("alloc") == allocs);
  CHECK(info.at("records").at("free") == frees);
  CHECK(info.at("records").at("diagnostic") == 0);
  if (asked == nullptr) {
    for (const Json& launch : run.records("launch")) {
      if (launch.at("kernel") == "_Z5countPmj" && launch.at("operands").size() == 1) continue;
      FAIL(launch.dump());  // modules come and go, handles with them
    }
  }
}

}  // namespace
}  // namespace convtrace::test
