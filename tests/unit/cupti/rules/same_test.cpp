// A value is not read a second time where nothing can have changed it, and only there.

#include <thread>

#include "tests/fakecuda/crowd.h"
#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Streams;
using format::SampleOutcome;
using format::TensorStats;

constexpr uint32_t kLength = 16;
std::atomic<CUdeviceptr> written_unseen{0};

/// Writes to an address that none of its parameters holds.
void run_unseen(const fakecuda_launch* launch) {
  const auto value = *static_cast<const float*>(launch->params[0]);
  auto* data = static_cast<float*>(launch->device(written_unseen, kLength * sizeof(float)));
  for (uint32_t i = 0; data != nullptr && i < kLength; ++i) data[i] = value;
}
constexpr unsigned kUnseenParams[] = {4};
constexpr fakecuda_kernel kUnseenKernels[] = {{"unseen", run_unseen, 1, kUnseenParams}};
constexpr fakecuda_image kUnseenImage = {
    {'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kUnseenKernels};

struct Rereading : Scene {
  Rereading() {
    await_preparation();
    REQUIRE(launch(fill) == CUDA_SUCCESS);  // the first one of a kernel waits for the device
    finish();
    sink.clear();
  }
  void finish() {
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    interceptor->collect();
  }
  SampleOutcome read(CUstream stream) const {
    DeviceRequest request;
    request.event.device = {format::Device::Type::kCuda, 0};
    request.event.value.generation = addresses.find(memory).value().generation;
    request.view =
        stats::dense_view(reinterpret_cast<const void*>(memory), format::DType::kF32, kLength);
    return interceptor->submit({&request, 1}, reinterpret_cast<uint64_t>(stream));
  }
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> found;
    for (const TensorStats& event : sink.all<TensorStats>())
      found.push_back(event.stats.max.as_f64());
    return found;
  }
};

unsigned bits_of(double value) { return std::bit_cast<unsigned>(static_cast<float>(value)); }

TEST_CASE("rules: a value that a copy or a set has changed is read again", "[same]") {
  Rereading scene;
  const Streams streams(1);
  std::vector<double> expected;
  for (int i = 0; i < 30; ++i) {
    const double value = i + 100;
    REQUIRE(cuMemsetD32Async(scene.memory, bits_of(value), kLength, streams[0]) == CUDA_SUCCESS);
    for (int time = 0; time < 3; ++time) {
      REQUIRE(scene.read(streams[0]) == SampleOutcome::kSampled);
      expected.push_back(value);
    }
  }
  scene.finish();
  CHECK(scene.values() == expected);
}

Rereading* the_scene = nullptr;

/// A launch during which another thread reads, before and after its work comes into the stream.
int read_around(const void* params) {
  const auto& p = *static_cast<const cuLaunchKernel_params*>(params);
  const auto read = [&] {
    std::thread([&] {
      REQUIRE(cuCtxSetCurrent(the_scene->context) == CUDA_SUCCESS);
      REQUIRE(the_scene->read(p.hStream) == SampleOutcome::kSampled);
    }).join();
  };
  read();
  const int result = real_launch(params);
  read();
  return result;
}

TEST_CASE("rules: what another thread reads while a launch is made is read", "[under_way]") {
  Rereading scene;
  the_scene = &scene;
  const Streams streams(1);
  std::vector<double> expected;
  double last = 2;
  for (int i = 0; i < 10; ++i) {
    auto value = static_cast<float>(i + 100);
    uint32_t count = kLength;
    void* params[] = {&scene.memory, &value, &count};
    REQUIRE(launch_kernel(*scene.interceptor,
                          {scene.fill, 1, 1, 1, 1, 1, 1, 0, streams[0], params, nullptr}, false,
                          read_around) == CUDA_SUCCESS);
    expected.insert(expected.end(), {last, value});
    last = value;
  }
  scene.finish();
  CHECK(scene.values() == expected);
}

TEST_CASE("rules: a value is read again behind a wait for another stream's work", "[ordered]") {
  Rereading scene;
  const Streams streams(2);
  CUmodule module = nullptr;
  CUfunction unseen = nullptr;
  CUevent event = nullptr, back = nullptr;
  REQUIRE(cuModuleLoadData(&module, &kUnseenImage) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&unseen, module, "unseen") == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  written_unseen = scene.memory;
  std::vector<double> expected;
  for (int i = 0; i < 30; ++i) {
    auto value = static_cast<float>(i + 100);
    void* params[] = {&value};
    REQUIRE(launch_one_thread(*scene.interceptor, unseen, streams[1], params) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(event, streams[1]) == CUDA_SUCCESS);
    REQUIRE(scene.read(streams[0]) == SampleOutcome::kSampled);  // of either content
    REQUIRE(cuStreamWaitEvent(streams[0], event, 0) == CUDA_SUCCESS);
    REQUIRE(scene.read(streams[0]) == SampleOutcome::kSampled);
    expected.push_back(value);
    REQUIRE(cuEventRecord(back, streams[0]) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(streams[1], back, 0) == CUDA_SUCCESS);
  }
  scene.finish();
  std::vector<double> behind;
  const auto values = scene.values();
  REQUIRE(values.size() == 2 * expected.size());
  for (size_t i = 1; i < values.size(); i += 2) behind.push_back(values[i]);
  CHECK(behind == expected);
  CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
}

}  // namespace
}  // namespace convtrace::cupti
