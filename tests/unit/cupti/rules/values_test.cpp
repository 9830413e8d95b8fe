// What is recorded is what the program's kernels left, whatever the device does first.

#include <cstdlib>

#include "tests/fakecuda/crowd.h"
#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Streams;
using format::SampleOutcome;
using format::TensorStats;

constexpr uint32_t kCount = 16;
constexpr size_t kBytes = kCount * sizeof(float);

/// A scene in which each launch fills a buffer with a number of its own.
struct Filling : Scene {
  Filling() : Scene({rule_for("fill*")}) {
    await_preparation();
    REQUIRE(launch(fill) == CUDA_SUCCESS);  // the first one of a kernel waits for the device
    finish();
    before = sink.all<TensorStats>().size();
  }
  int fill_with(CUdeviceptr to, float value, CUstream stream) {
    uint32_t count = kCount;
    void* params[] = {&to, &value, &count};
    return launch_kernel(*interceptor, {fill, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr});
  }
  void finish() {
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    interceptor->collect();
  }
  /// @return the largest element of each value, in the order in which they came out.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> found;
    for (const TensorStats& event : sink.all<TensorStats>())
      found.push_back(event.stats.max.as_f64());
    found.erase(found.begin(), found.begin() + static_cast<ptrdiff_t>(before));
    return found;
  }
  [[nodiscard]] DeviceRequest request(CUdeviceptr address) const {
    DeviceRequest request;
    request.event.device = {format::Device::Type::kCuda, 0};
    request.event.value.generation = addresses.find(address).value().generation;
    request.view =
        stats::dense_view(reinterpret_cast<const void*>(address), format::DType::kF32, kCount);
    return request;
  }
  size_t before = 0;
};

CUdeviceptr allocate(size_t bytes = kBytes) {
  CUdeviceptr address = 0;
  REQUIRE(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
  return address;
}

TEST_CASE("rules: each launch has its own value, in the order of the launches", "[values]") {
  Filling scene;
  const Streams streams(3);
  const CUdeviceptr buffers[] = {allocate(), allocate(), allocate()};
  std::vector<double> expected;
  for (int i = 0; i < 60; ++i) {
    const size_t stream = i % 7 % 3;
    expected.push_back(i + 100);
    REQUIRE(scene.fill_with(buffers[stream], static_cast<float>(expected.back()),
                            streams[stream]) == CUDA_SUCCESS);
    if (i % 5 == 0) scene.interceptor->collect();
  }
  scene.finish();
  CHECK(scene.values() == expected);
}

TEST_CASE("rules: memory may be freed right behind the launch that filled it", "[free]") {
  Filling scene;
  const Streams streams(2);
  std::vector<double> expected;
  for (int i = 0; i < 20; ++i) {
    const CUdeviceptr plain = allocate();
    CUdeviceptr ordered = 0;
    expected.push_back(i + 100);
    expected.push_back(i + 200);
    REQUIRE(scene.fill_with(plain, static_cast<float>(i + 100), streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(plain) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocAsync(&ordered, kBytes, streams[1]) == CUDA_SUCCESS);
    REQUIRE(scene.fill_with(ordered, static_cast<float>(i + 200), streams[1]) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(ordered, streams[1]) == CUDA_SUCCESS);
  }
  scene.finish();
  CHECK(scene.values() == expected);
}

TEST_CASE("rules: an observer's tensor is read behind what other streams do to it", "[settled]") {
  Filling scene;
  const Streams streams(2);
  const CUdeviceptr buffer = allocate(), other = allocate();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  std::vector<double> expected;
  size_t skipped = 0;
  for (int i = 0; i < 30; ++i) {
    REQUIRE(scene.fill_with(other, 1, streams[0]) == CUDA_SUCCESS);
    REQUIRE(scene.fill_with(buffer, static_cast<float>(i + 100), streams[1]) == CUDA_SUCCESS);
    if (i % 3 == 0) {
      REQUIRE(cuEventRecord(event, streams[1]) == CUDA_SUCCESS);
      REQUIRE(cuStreamWaitEvent(streams[0], event, 0) == CUDA_SUCCESS);
    }
    DeviceRequest request = scene.request(buffer);
    const auto stream = reinterpret_cast<uint64_t>(streams[0]);
    expected.insert(expected.end(), {1.0, i + 100.0});
    if (scene.interceptor->is_settled(request.event, stream)) {
      REQUIRE(scene.interceptor->submit({&request, 1}, stream) == SampleOutcome::kSampled);
      expected.push_back(i + 100);
    } else {
      ++skipped;
    }
    // As a program has to that reads the buffer in the first stream.
    REQUIRE(cuEventRecord(event, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(streams[1], event, 0) == CUDA_SUCCESS);
  }
  scene.finish();
  CHECK(scene.values() == expected);
  CHECK(skipped == 20);
}

TEST_CASE("rules: a value that another stream may have overwritten is counted", "[overwritten]") {
  Filling scene;
  const Streams streams(2);
  const CUdeviceptr buffer = allocate();
  CUevent event = nullptr, back = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  const auto stream = reinterpret_cast<uint64_t>(streams[0]);
  std::vector<double> expected;
  for (int i = 0; i < 30; ++i) {
    const bool behind = i % 3 == 0;  // the event is recorded behind the observer's read
    REQUIRE(scene.fill_with(buffer, static_cast<float>(i + 100), streams[0]) == CUDA_SUCCESS);
    if (!behind) REQUIRE(cuEventRecord(event, streams[0]) == CUDA_SUCCESS);
    DeviceRequest request = scene.request(buffer);
    REQUIRE(scene.interceptor->is_settled(request.event, stream));
    REQUIRE(scene.interceptor->submit({&request, 1}, stream) == SampleOutcome::kSampled);
    if (behind) REQUIRE(cuEventRecord(event, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(streams[1], event, 0) == CUDA_SUCCESS);
    REQUIRE(scene.fill_with(buffer, static_cast<float>(i + 500), streams[1]) == CUDA_SUCCESS);
    expected.push_back(i + 100);
    if (behind) expected.push_back(i + 100);
    expected.push_back(i + 500);
    REQUIRE(cuEventRecord(back, streams[1]) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(streams[0], back, 0) == CUDA_SUCCESS);
  }
  scene.finish();
  CHECK(scene.values() == expected);
  uint64_t counted = 0;
  for (const format::Loss& loss : scene.sink.all<format::Loss>())
    counted += loss.reason == format::LossReason::kStreamUnsafe ? loss.count : 0;
  CHECK(counted == 20);
}

TEST_CASE("rules: memory of the host is not read while a copy to it is under way", "[copy]") {
  Filling scene;
  const Streams streams(1);
  void* pinned = nullptr;
  REQUIRE(cuMemHostAlloc(&pinned, kBytes, 0) == CUDA_SUCCESS);
  format::TensorStats event;
  event.device = {format::Device::Type::kCpu, 0};
  event.value.generation =
      scene.addresses.find(reinterpret_cast<uint64_t>(pinned)).value().generation;
  for (int i = 0; i < 30; ++i) {
    const auto value = static_cast<float>(i + 100);
    REQUIRE(scene.fill_with(scene.memory, value, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoHAsync(pinned, scene.memory, kBytes, streams[0]) == CUDA_SUCCESS);
    if (i % 3 == 0) REQUIRE(cuStreamSynchronize(streams[0]) == CUDA_SUCCESS);
    const bool settled = scene.interceptor->is_settled(event, 0);
    if (settled) CHECK(*static_cast<const float*>(pinned) == value);
    if (i % 3 == 0) CHECK(settled);
  }
  scene.finish();
  REQUIRE(cuMemFreeHost(pinned) == CUDA_SUCCESS);
}

TEST_CASE("rules: a tensor of another device is read in that device's context", "[context]") {
  setenv("FAKECUDA_DEVICES", "2", 1);
  Filling scene;
  CUcontext second = nullptr, popped = nullptr;
  REQUIRE(cuCtxCreate(&second, nullptr, 0, 1) == CUDA_SUCCESS);
  const CUdeviceptr memory = allocate();
  REQUIRE(cuMemsetD32(memory, 0x40000000, kCount) == CUDA_SUCCESS);  // 2
  scene.await_preparation(1);
  REQUIRE(cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
  DeviceRequest request = scene.request(memory);
  request.event.device.index = 1;
  CHECK(scene.interceptor->submit({&request, 1}, 0) == SampleOutcome::kSampled);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(cuCtxPushCurrent(second) == CUDA_SUCCESS);
  scene.finish();
  REQUIRE(scene.values().size() == 2);
  CHECK(scene.values().back() == 2);
  CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
  unsetenv("FAKECUDA_DEVICES");
}

TEST_CASE("rules: of memory without known blocks no more than 64 MiB are read", "[end]") {
  constexpr size_t kMost = size_t{64} << 20;
  Filling scene;
  const CUdeviceptr memory = allocate(kMost + 4096);
  REQUIRE(scene.fill_with(memory, 7, nullptr) == CUDA_SUCCESS);
  scene.finish();
  CHECK(scene.sink.all<TensorStats>().back().bytes == kMost);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
}

}  // namespace
}  // namespace convtrace::cupti
