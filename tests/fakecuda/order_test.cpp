// The scheduler: what it may do, and that it does it. With a seed, 4 if none is given.

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/fakecuda/crowd.h"

namespace fakecuda {
namespace {

[[maybe_unused]] const int seeded = setenv("FAKECUDA_SEED", "4", 0);

std::vector<uint64_t> done;  // numbers of launches; the scheduler does one at a time

void run_note(const fakecuda_launch* launch) {
  done.push_back(*static_cast<const uint64_t*>(launch->params[0]));
}
void run_touch(const fakecuda_launch* launch) {
  if (void* data = launch->device(*static_cast<const uint64_t*>(launch->params[0]), 8))
    *static_cast<uint64_t*>(data) += 1;
}
constexpr unsigned kWord[] = {8};
constexpr fakecuda_kernel kKernels[] = {{"note", run_note, 1, kWord},
                                        {"touch", run_touch, 1, kWord}};
constexpr fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 2, kKernels};

struct Device {
  Device() {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, &kImage) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&note, module, "note") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&touch, module, "touch") == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc(&word, 8) == CUDA_SUCCESS);
    // The first launch of a kernel waits for the device.
    REQUIRE(launch(note, 0, nullptr) == CUDA_SUCCESS);
    REQUIRE(launch(touch, word, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    done.clear();
  }
  ~Device() { cuCtxDestroy(context); }
  static CUresult launch(CUfunction kernel, uint64_t argument, CUstream stream) {
    void* params[] = {&argument};
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction note = nullptr, touch = nullptr;
  CUdeviceptr word = 0;
};

/// A program of launches and events over streams, with what has to be done before each launch.
struct RandomProgram {
  explicit RandomProgram(Device& device_in) : device(device_in) {
    CUstream blocking = nullptr;
    REQUIRE(cuStreamCreate(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    streams = {others[0], others[1], blocking, nullptr};
    for (CUevent& event : events)
      REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  }
  void take_step() {
    const size_t at = random() % streams.size(), event = random() % std::size(events);
    switch (random() % 4) {
      case 0:
        REQUIRE(cuEventRecord(events[event], streams[at]) == CUDA_SUCCESS);
        recorded[event] = before_next(at);
        break;
      case 1:
        REQUIRE(cuStreamWaitEvent(streams[at], events[event], 0) == CUDA_SUCCESS);
        last[at] = before_next(at);
        last[at].insert(last[at].end(), recorded[event].begin(), recorded[event].end());
        break;
      default:
        wanted.push_back(before_next(at));
        REQUIRE(Device::launch(device.note, wanted.size() - 1, streams[at]) == CUDA_SUCCESS);
        last[at] = {wanted.size() - 1};
    }
  }
  /// What the next item of a stream stands behind: its own last, and between the legacy stream (3)
  /// and the blocking one (2) the other's.
  [[nodiscard]] std::vector<uint64_t> before_next(size_t at) const {
    std::vector<uint64_t> found = last[at];
    if (at >= 2) found.insert(found.end(), last[5 - at].begin(), last[5 - at].end());
    return found;
  }

  Device& device;
  Streams others{2};
  std::vector<CUstream> streams;
  CUevent events[3] = {};
  std::vector<uint64_t> last[4], recorded[3];
  std::vector<std::vector<uint64_t>> wanted;  ///< by launch: what is done before it
  std::mt19937 random{static_cast<unsigned>(atoi(getenv("FAKECUDA_SEED")))};
};

TEST_CASE("order: what stream, event and legacy stream ask for is kept, no more") {
  Device device;
  size_t inversions = 0;
  for (int round = 0; round < 20; ++round) {
    done.clear();
    RandomProgram program(device);
    program.random.discard(static_cast<unsigned>(round) * 1000);
    for (int i = 0; i < 100; ++i) program.take_step();
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(done.size() == program.wanted.size());
    std::vector<size_t> place(done.size());
    for (size_t i = 0; i < done.size(); ++i) place[done[i]] = i;
    for (size_t i = 0; i < done.size(); ++i)
      for (const uint64_t before : program.wanted[i]) CHECK(place[before] < place[i]);
    inversions += std::ranges::is_sorted(done) ? 0 : 1;
  }
  CHECK(inversions > 10);
}

TEST_CASE("order: what is asked for is not ready, until it is, without a call that waits") {
  Device device;
  const Streams streams(1);
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, 0) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
  Gatekeeper gatekeeper;
  gatekeeper.stall(streams[0]);
  REQUIRE(cuEventRecord(event, streams[0]) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamQuery(streams[0]) == CUDA_ERROR_NOT_READY);
  float ms = 0;
  CHECK(cuEventElapsedTime(&ms, event, event) == CUDA_ERROR_NOT_READY);
  Gatekeeper::let_go();
  CUresult result = CUDA_ERROR_NOT_READY;
  for (int i = 0; i < 1000 && result == CUDA_ERROR_NOT_READY; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    result = cuEventQuery(event);
  }
  CHECK(result == CUDA_SUCCESS);
}

TEST_CASE("order: the 1025th launch waits until one is done") {
  Device device;
  const Streams streams(1);
  Gatekeeper gatekeeper;
  std::atomic<bool> launched{false};
  for (int i = 0; i < 1024; ++i) gatekeeper.stall(streams[0]);
  std::thread one_more([&] {
    cuCtxSetCurrent(device.context);
    Device::launch(device.note, 1, streams[0]);
    launched = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(launched);
  Gatekeeper::let_go();
  one_more.join();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("order: a kernel's first launch waits for its context, others do not") {
  Device device;
  const Streams streams(2);
  CUmodule module = nullptr;
  CUfunction fresh = nullptr;
  REQUIRE(cuModuleLoadData(&module, &kImage) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&fresh, module, "note") == CUDA_SUCCESS);
  Gatekeeper gatekeeper;
  gatekeeper.stall(streams[0]);
  CHECK(Device::launch(device.note, 1, streams[1]) == CUDA_SUCCESS);
  std::atomic<bool> launched{false};
  std::thread first([&] {
    cuCtxSetCurrent(device.context);
    Device::launch(fresh, 2, streams[1]);
    launched = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(launched);
  Gatekeeper::let_go();
  first.join();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("order: one seed in five refuses to register much memory, of those that CI runs, too") {
  constexpr size_t kMuch = 2 << 20;
  const Device device;
  std::vector<char> memory(kMuch);
  const bool limited = atoi(getenv("FAKECUDA_SEED")) % 5 == 2;
  CHECK(cuMemHostRegister(memory.data(), kMuch, 0) ==
        (limited ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS));
  CHECK((limited || cuMemHostUnregister(memory.data()) == CUDA_SUCCESS));
}

TEST_CASE("order: each thread has a per-thread stream of its own") {
  Device device;
  Gatekeeper gatekeeper;
  fakecuda_connections(1 << 20);
  std::thread([&] {
    cuCtxSetCurrent(device.context);
    gatekeeper.stall(CU_STREAM_PER_THREAD);
  }).join();
  REQUIRE(Device::launch(device.note, 1, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(done == std::vector<uint64_t>{1});
}

TEST_CASE("order: streams that share a connection begin in order") {
  Device device;
  const Streams streams(3);
  fakecuda_connections(1);
  Gatekeeper gatekeeper;
  gatekeeper.stall(streams[0]);
  REQUIRE(Device::launch(device.note, 1, streams[1]) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(streams[1]) == CUDA_SUCCESS);  // the first has begun
  gatekeeper.stall(streams[0]);
  REQUIRE(Device::launch(device.note, 2, streams[2]) == CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(cuStreamQuery(streams[2]) == CUDA_ERROR_NOT_READY);  // the second has not
  Gatekeeper::let_go();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(done == std::vector<uint64_t>{1, 2});
}

TEST_CASE("order: memory of a stream comes and goes in its order, a plain free waits") {
  Device device;
  const Streams streams(1);
  for (int i = 0; i < 20; ++i) {
    CUdeviceptr ordered = 0, plain = 0;
    REQUIRE(cuMemAllocAsync(&ordered, 8, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc(&plain, 8) == CUDA_SUCCESS);
    REQUIRE(Device::launch(device.touch, ordered, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(ordered, streams[0]) == CUDA_SUCCESS);
    REQUIRE(Device::launch(device.touch, plain, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(plain) == CUDA_SUCCESS);
  }
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("order: what a capture holds cannot be asked for") {
  Device device;
  const Streams streams(1);
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  REQUIRE(cuEventCreate(&event, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, streams[0]) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(cuStreamQuery(streams[0]) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(streams[0], &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("order: an attribute of a launch that cannot be honoured is refused") {
  Device device;
  CUlaunchAttribute attribute{};
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  void* params[] = {&device.word};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  CHECK(cuLaunchKernelEx(&config, device.touch, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
  config.gridDimX = 2;
  CHECK(cuLaunchKernelEx(&config, device.touch, params, nullptr) == CUDA_SUCCESS);
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  CHECK(cuLaunchKernelEx(&config, device.touch, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

// Last: a lost context is lost for the process.
TEST_CASE("order: unmapping waits for nobody, and a later call tells what that did") {
  constexpr size_t kGranule = 2 << 20;
  Device device;
  const Streams streams(1);
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(cuMemAddressReserve(&base, kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemCreate(&handle, kGranule, nullptr, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(base, kGranule, 0, handle, 0) == CUDA_SUCCESS);
  Gatekeeper gatekeeper;
  gatekeeper.stall(streams[0]);
  REQUIRE(Device::launch(device.touch, base, streams[0]) == CUDA_SUCCESS);
  REQUIRE(cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  Gatekeeper::let_go();
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(Device::launch(device.touch, device.word, streams[0]) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace fakecuda
