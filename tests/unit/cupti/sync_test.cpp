// What orders streams, as CUPTI reports it.

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {
namespace {

using format::Sync;
using format::SyncKind;

/// "event-record s e", with the handles by the names they have here.
class Names {
 public:
  void add(const void* handle, const char* name) {
    names_.emplace_back(reinterpret_cast<uint64_t>(handle), name);
  }
  [[nodiscard]] std::string operator()(uint64_t handle) const {
    for (const auto& [known, name] : names_)
      if (known == handle) return name;
    return "?";
  }

 private:
  std::vector<std::pair<uint64_t, std::string>> names_;
};

std::vector<std::string> told(const Scene& scene, const Names& names) {
  std::vector<std::string> list;
  for (const Sync& sync : scene.sink.all<Sync>()) {
    std::string line(to_string(sync.kind));
    if (sync.stream != 0) line += ' ' + names(sync.stream);
    if (sync.event != 0) line += ' ' + names(sync.event);
    if (sync.flags != 0) line += " flags " + std::to_string(sync.flags);
    list.push_back(line);
  }
  return list;
}

using Lines = std::vector<std::string>;

/// Streams s and t and event e, by these names.
struct Named {
  Names names;
  CUstream s = nullptr;
  CUstream t = nullptr;
  CUevent e = nullptr;

  explicit Named(unsigned event_flags) {
    REQUIRE(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuStreamCreateWithPriority(&t, CU_STREAM_DEFAULT, -1) == CUDA_SUCCESS);
    REQUIRE(cuEventCreate(&e, event_flags) == CUDA_SUCCESS);
    names.add(s, "s");
    names.add(t, "t");
    names.add(e, "e");
  }
};

TEST_CASE("sync: what orders streams and the host is told in the order of the calls", "[sync]") {
  Scene scene;
  const auto [names, s, t, e] = Named(CU_EVENT_DISABLE_TIMING);
  REQUIRE(cuEventRecord(e, s) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(t, e, 0) == CUDA_SUCCESS);
  REQUIRE(cuEventSynchronize(e) == CUDA_SUCCESS);
  REQUIRE(cuEventQuery(e) == CUDA_SUCCESS);
  float milliseconds = -1;
  REQUIRE(cuEventElapsedTime(&milliseconds, e, e) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(t) == CUDA_SUCCESS);
  REQUIRE(cuStreamQuery(nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(cuEventDestroy(e) == CUDA_SUCCESS);
  REQUIRE(cuStreamDestroy(t) == CUDA_SUCCESS);
  CHECK(told(scene, names) == Lines{"stream-create s flags 1", "stream-create t",
                                    "event-create e flags 2", "event-record s e", "stream-wait t e",
                                    "event-done e", "event-done e", "event-done e", "stream-done t",
                                    "stream-done", "context-done", "event-destroy e",
                                    "stream-destroy t"});
  const Sync first = scene.sink.all<Sync>().front();
  CHECK(first.header.step == 3);
  CHECK(first.device == 0);
}

TEST_CASE("sync: a function of the host is told where it is put", "[sync]") {
  Scene scene;
  const auto [names, s, t, e] = Named(CU_EVENT_DEFAULT);
  const auto nothing = [](void*) {};
  REQUIRE(cuLaunchHostFunc(s, nothing, nullptr) == CUDA_SUCCESS);
  CHECK(told(scene, names).back() == "event-done s");
}

TEST_CASE("sync: waits in a batch are told among its writes, unless they are captured", "[sync]") {
  Scene scene;
  const auto [names, s, t, e] = Named(CU_EVENT_DEFAULT);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, scene.memory, {5}, 0, 0};
  operations[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, scene.memory, {5}, 0, 0};
  REQUIRE(cuStreamBatchMemOp(s, 2, operations, 0) == CUDA_SUCCESS);
  CHECK(told(scene, names).back() == "stream-wait s");
  CHECK(scene.sink.all<format::Copy>().size() == 1);
  const size_t before = scene.sink.all<Sync>().size();
  CUgraph graph = nullptr;
  REQUIRE(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuStreamBatchMemOp(s, 2, operations, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(s, &graph) == CUDA_SUCCESS);
  CHECK(scene.sink.all<Sync>().size() == before + 2);  // the capture begins, and ends
  cuGraphDestroy(graph);
}

TEST_CASE("sync: a device other than the first is told", "[sync]") {
  Scene scene;
  CUcontext other = nullptr;
  REQUIRE(cuCtxCreate(&other, nullptr, 0, 1) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuCtxDestroy(other) == CUDA_SUCCESS);
  REQUIRE(scene.sink.all<Sync>().size() == 1);
  CHECK(scene.sink.all<Sync>()[0].device == 1);
}

TEST_CASE("sync: a call that failed, or found work under way, ordered nothing", "[sync]") {
  Scene scene;
  CHECK(cuEventQuery(nullptr) != CUDA_SUCCESS);  // as CUDA_ERROR_NOT_READY
  CHECK(cuEventRecord(nullptr, nullptr) != CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(nullptr, nullptr, 0) != CUDA_SUCCESS);
  CHECK(scene.sink.all<Sync>().empty());
}

TEST_CASE("sync: what is captured orders nothing before its graph is launched", "[sync]") {
  Scene scene;
  const auto [names, s, t, e] = Named(CU_EVENT_DEFAULT);
  CUgraph graph = nullptr;
  const size_t before = scene.sink.all<Sync>().size();
  REQUIRE(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(e, s) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(t, e, 0) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(e, t) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(s, e, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(s, &graph) == CUDA_SUCCESS);
  const Lines lines = told(scene, names);
  CHECK(Lines(lines.begin() + static_cast<ptrdiff_t>(before), lines.end()) ==
        Lines{"capture-begin s", "capture-end s"});
  REQUIRE(cuEventRecord(e, t) == CUDA_SUCCESS);
  CHECK(told(scene, names).back() == "event-record t e");
  cuGraphDestroy(graph);
}

TEST_CASE("sync: a copy from or to the host waits, one inside the device does not", "[sync]") {
  Scene scene;
  char host[32] = {};
  const auto waits = [&scene] { return scene.sink.all<Sync>().size(); };
  REQUIRE(cuMemcpyDtoD(scene.memory + 32, scene.memory, 32) == CUDA_SUCCESS);
  REQUIRE(cuMemcpy(scene.memory + 32, scene.memory, 32) == CUDA_SUCCESS);
  CHECK(waits() == 0);
  REQUIRE(cuMemcpyHtoD(scene.memory, host, 32) == CUDA_SUCCESS);
  CHECK(waits() == 1);
  REQUIRE(cuMemcpyDtoH(host, scene.memory, 32) == CUDA_SUCCESS);
  CHECK(waits() == 2);
  REQUIRE(cuMemcpy(reinterpret_cast<CUdeviceptr>(host), scene.memory, 32) == CUDA_SUCCESS);
  CHECK(waits() == 3);
  REQUIRE(cuMemcpyHtoDAsync(scene.memory, host, 32, nullptr) == CUDA_SUCCESS);
  CHECK(waits() == 3);
  for (const Sync& sync : scene.sink.all<Sync>()) CHECK(sync.kind == SyncKind::kStreamDone);
}

TEST_CASE("sync: memory of the host that has another address on the device is known by both",
          "[sync]") {
  setenv("FAKECUDA_HOST_ALIAS", "1", 1);
  Scene scene;
  static float host[16];
  CUdeviceptr on_device = 0;
  REQUIRE(cuMemHostRegister(host, sizeof host, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemHostGetDevicePointer(&on_device, host, 0) == CUDA_SUCCESS);
  unsetenv("FAKECUDA_HOST_ALIAS");
  REQUIRE(on_device != reinterpret_cast<CUdeviceptr>(host));
  scene.memory = on_device;
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(host[15] == 2);
  const auto allocs = scene.sink.all<format::Alloc>();
  REQUIRE(allocs.size() == 3);
  CHECK(allocs[2].address == on_device);
  CHECK(allocs[2].bytes == sizeof host);
  CHECK(allocs[2].source == format::MemorySource::kHost);
  const auto launches = scene.sink.all<format::Launch>();
  REQUIRE(launches.at(0).operands.size() == 1);
  CHECK(launches[0].operands[0].generation == allocs[2].generation);
  REQUIRE(cuMemHostUnregister(host) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Free>().size() == 2);
  CHECK(scene.addresses.find(on_device)->freed);
}

}  // namespace
}  // namespace convtrace::cupti
