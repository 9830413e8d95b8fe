// CONVTRACE_POISON and CONVTRACE_QUARANTINE on the driver's memory: what a correct program sees is
// what it sees without them; what a wrong one does is found.

#include "tests/integration/cuda_run.h"

namespace convtrace::test {
namespace {

constexpr const char* kQuarantine = "CONVTRACE_QUARANTINE=1";
constexpr const char* kPoison = "CONVTRACE_POISON=1";
/// As eight bytes of memory show it.
constexpr const char* kFresh = "7ffdffd57ffdffd5";

std::string output(CudaRun& run, const std::string& scenario) {
  const ProcessResult result = run.run({"cuda_keep", scenario});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return result.out;
}

std::string plain_output(const std::string& scenario, const char* memory = nullptr) {
  CudaRun run;
  if (memory != nullptr) run.with(memory);
  const ProcessResult result = run.run_untraced({"cuda_keep", scenario});
  INFO(result.out);
  REQUIRE(result.exit_code == 0);
  return result.out;
}

std::vector<Json> errors(const CudaRun& run) {
  std::vector<Json> found;
  for (Json& finding : run.records("finding"))
    if (finding.at("level") == "error") found.push_back(std::move(finding));
  return found;
}

}  // namespace

TEST_CASE("cuda keep: memory in quarantine is nobody else's, so its use is found") {
  CHECK(plain_output("dangling") == "address same\nseen 0\n");
  {
    CudaRun run;  // given out again, it is somebody's: nothing tells the old pointer from the new
    CHECK(output(run, "dangling") == "address same\nseen 0\n");
    CHECK(errors(run).empty());
  }
  const bool poison = GENERATE(false, true);
  CudaRun run;
  run.with(kQuarantine);
  if (poison) run.with(kPoison);
  CHECK(output(run, "dangling") ==
        std::string("address other\nseen ") + (poison ? "ffffffffffffffff" : "0") + "\n");
  const std::vector<Json> found = errors(run);
  REQUIRE(found.size() == 1);
  CHECK(found[0].at("kind") == "use-after-free");
  CHECK(found[0].at("slot") == "arg:0");
  CHECK(run.records("free").size() == 1);
}

TEST_CASE("cuda keep: fresh memory is filled, managed memory is not") {
  CHECK(plain_output("fresh") == "plain 0\nordered 0\nmanaged 0\n");
  CudaRun run;
  run.with(kPoison);
  CHECK(output(run, "fresh") ==
        std::string("plain ") + kFresh + "\nordered " + kFresh + "\nmanaged 0\n");
  CHECK(run.records("copy").empty());  // ours are not the program's
}

TEST_CASE("cuda keep: what a program sees of memory is what it sees without a quarantine") {
  const std::string scenario =
      GENERATE("twice", "big", "free", "little", "shared", "contexts", "churn");
  const bool poison = GENERATE(false, true);
  CAPTURE(scenario, poison);
  const char* const memory = "FAKECUDA_MEMORY=33554432";
  CudaRun run;
  run.with(kQuarantine).with(memory);
  if (poison) run.with(kPoison);
  CHECK(output(run, scenario) == plain_output(scenario, memory));
  CHECK(errors(run).empty());
}

TEST_CASE("cuda keep: the quarantine ends with the first capture, and says so") {
  CudaRun run;
  run.with(kQuarantine).with(kPoison);
  const ProcessResult result = run.run({"cuda_keep", "capture"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == plain_output("capture"));
  CHECK(result.err.find("CT-1411") != std::string::npos);
}

TEST_CASE("cuda keep: without CUPTI memory is held and filled all the same") {
  CudaRun run(Fakes::kNoCupti);
  run.with(kQuarantine).with(kPoison);
  CHECK(output(run, "dangling") == "address other\nseen ffffffffffffffff\n");
}

}  // namespace convtrace::test
