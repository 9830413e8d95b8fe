// Every way to give, take and write device memory: the trace holds exactly what the program
// counted.

#include <set>
#include <sstream>

#include "tests/integration/cuda_run.h"

namespace convtrace::test {
namespace {

std::string counts_of(const CudaRun& run) {
  std::ostringstream counts;
  const char* between = "";
  for (const char* kind : {"alloc", "free", "copy", "launch"}) {
    counts << between << kind << ' ' << run.records(kind).size();
    between = " ";
  }
  return counts.str() + "\n";
}

std::set<std::string> sources_of(const std::vector<Json>& records) {
  std::set<std::string> sources;
  for (const Json& record : records) sources.insert(record.at("source"));
  return sources;
}

TEST_CASE("cuda: memory given, taken and written in every way is counted exactly") {
  const std::string how = GENERATE("", "context");
  CAPTURE(how);
  CudaRun run;
  run.with("FAKECUDA_DEVICES=2");
  const ProcessResult result = run.run({"cuda_memory", how});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out == "alloc 17 free 17 copy 28 launch 3\n");
  CHECK(counts_of(run) == result.out);
  const std::set<std::string> sources = {"driver",    "foreign",        "host",
                                         "multicast", "stream-ordered", "virtual"};
  CHECK(sources_of(run.records("alloc")) == sources);
  CHECK(sources_of(run.records("free")) == sources);

  std::set<Json> given, taken;
  for (const Json& alloc : run.records("alloc")) {
    given.insert(alloc.at("generation"));
    if (alloc.at("source") == "virtual") CHECK(alloc.at("device") == "cuda:1");
  }
  for (const Json& free : run.records("free")) taken.insert(free.at("generation"));
  CHECK(given == taken);
  CHECK(given.size() == 17);
}

TEST_CASE("cuda: a call that fails gives, takes and writes nothing") {
  const std::string failing =
      GENERATE("cuMemAlloc_v2:1", "cuMemAllocPitch_v2:1", "cuMemAllocManaged:1", "cuMemHostAlloc:1",
               "cuMemAllocHost_v2:1", "cuMemHostRegister_v2:1", "cuMemAllocAsync:2",
               "cuMemAllocFromPoolAsync:1", "cuMemPoolImportPointer:1", "cuIpcOpenMemHandle_v2:1",
               "cuExternalMemoryGetMappedBuffer:1", "cuMemUnmap:1", "cuMemcpyHtoD_v2:1",
               "cuMemcpy2D_v2:1", "cuMemcpy3DPeerAsync:1", "cuMemcpyBatchAsync_v2:1",
               "cuStreamBatchMemOp_v2:1", "cuTensorMapEncodeTiled:1");
  CAPTURE(failing);
  CudaRun run;
  run.with("FAKECUDA_FAIL=" + failing);
  const ProcessResult result = run.run({"cuda_memory"});
  REQUIRE(result.exit_code == 0);
  CHECK(counts_of(run) == result.out);
}

TEST_CASE("cuda: the memory that a tensor map describes is an operand") {
  CudaRun run;
  REQUIRE(run.run({"cuda_memory"}).exit_code == 0);
  const auto launches = run.records("launch");
  REQUIRE(launches.size() == 3);
  const Json& operands = launches[0].at("operands");
  REQUIRE(operands.size() == 2);
  CHECK(operands[0].at("param") == 0);
  CHECK(operands[0].at("confidence") == "pointer-interior");
  CHECK(operands[0].at("offset") == 64);
  CHECK(operands[0].at("generation") == operands[1].at("generation"));
  for (const size_t of_one_call : {size_t{1}, size_t{2}}) {
    CHECK(launches[of_one_call].at("why") == "no rule asks for it");
    CHECK(launches[of_one_call].at("kernel") == "map_kernel");
    CHECK(launches[of_one_call].at("operands") == operands);
  }
}

}  // namespace
}  // namespace convtrace::test
