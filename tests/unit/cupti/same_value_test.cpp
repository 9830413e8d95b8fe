#include <cuda.h>
#include <cupti.h>

#include <cstdlib>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakecuda/hook.h"
#include "tests/support/same_stats.h"
#include "tests/unit/cupti/device_scene.h"
#include "tests/unit/cupti/graph_scene.h"

// What was read and cannot have changed since is not read again.

namespace convtrace::cupti {
namespace {

using fakecuda::fakecuda_launches;

constexpr uint32_t kElements = 16;

struct Reading : Scene {
  explicit Reading(void (*change)(InterceptorOptions&) = nullptr) : Scene({}, change) {
    await_preparation();
    REQUIRE(launch(fill) == CUDA_SUCCESS);  // 2 everywhere
    sink.clear();
  }
  [[nodiscard]] DeviceRequest request(Capture capture = Capture::kStats, uint64_t count = kElements,
                                      CUdeviceptr at = 0) const {
    DeviceRequest request;
    request.event.device = {format::Device::Type::kCuda, 0};
    request.event.capture = capture;
    request.view =
        stats::dense_view(reinterpret_cast<const void*>(at == 0 ? memory : at), DType::kF32, count);
    return request;
  }
  /// @return the number of kernels that were launched to read the batch; each is followed by one that
  /// folds what it has left.
  uint64_t read(std::vector<DeviceRequest> batch, CUstream stream = nullptr) {
    const uint64_t before = fakecuda_launches();
    REQUIRE(interceptor->submit(batch, reinterpret_cast<uint64_t>(stream)) ==
            SampleOutcome::kSampled);
    interceptor->collect();
    return (fakecuda_launches() - before) / 2;
  }
};

stats::StatsResult on_cpu_of(float value, Capture capture) {
  const std::vector<float> elements(kElements, value);
  stats::StatsResult result;
  REQUIRE(stats::compute_on_cpu(stats::dense_view(elements.data(), DType::kF32, kElements), capture,
                                result)
              .ok());
  return result;
}

TEST_CASE("same value: what nothing has changed since is read once and recorded each time") {
  Reading scene;
  const DeviceRequest whole = scene.request(), hash = scene.request(Capture::kHash);
  CHECK(scene.read({whole, hash, whole}) == 1);
  CHECK(scene.read({whole}) == 0);
  CHECK(scene.read({hash, scene.request(Capture::kStats, 8), whole}) == 1);
  const auto values = scene.sink.all<TensorStats>();
  const Capture expected[] = {Capture::kStats, Capture::kHash,  Capture::kStats, Capture::kStats,
                              Capture::kHash,  Capture::kStats, Capture::kStats};
  REQUIRE(values.size() == std::size(expected));
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i].capture == expected[i]);
    if (i == 5) continue;  // the other view
    const stats::StatsResult result = on_cpu_of(2, expected[i]);
    CHECK(test::same_bits(values[i].stats, result.stats));
    CHECK(values[i].samples.size() == result.sample_bytes);
  }
}

TEST_CASE("same value: a result that has less than is asked for is not enough") {
  Reading scene([](InterceptorOptions& options) { options.samples = 12; });
  DeviceRequest leading = scene.request();
  leading.samples = 12;
  CHECK(scene.read({scene.request(Capture::kHash)}) == 1);
  CHECK(scene.read({scene.request()}) == 1);
  CHECK(scene.read({leading}) == 1);
  CHECK(scene.read({leading, scene.request(), scene.request(Capture::kHash)}) == 0);
  const auto values = scene.sink.all<TensorStats>();
  REQUIRE(values.size() == 6);
  CHECK(values[3].leading.size() == 12 * sizeof(float));
  CHECK(values[4].leading.empty());
}

TEST_CASE("same value: after any work of the program it is read again") {
  Reading scene;
  const Captured graph(scene);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr other = 0, ordered = 0;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&other, 64) == CUDA_SUCCESS);
  REQUIRE(cuMemAllocAsync(&ordered, 64, stream) == CUDA_SUCCESS);
  const float one[kElements] = {};
  float value = 2;
  uint32_t count = 16;
  void* params[] = {&other, &value, &count};
  REQUIRE(scene.read({scene.request()}) == 1);
  REQUIRE(scene.read({scene.request()}) == 0);
  SECTION("a launch") { CHECK(scene.launch(scene.fill) == CUDA_SUCCESS); }
  SECTION("a launch of another thread on another stream") {
    std::thread([&] {
      CHECK(cuCtxSetCurrent(scene.context) == CUDA_SUCCESS);
      CHECK(launch_one_thread(*scene.interceptor, scene.fill, stream, params) == CUDA_SUCCESS);
    }).join();
  }
  SECTION("a launch past the gate") {
    CHECK(cuLaunchKernel(scene.fill, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr) == CUDA_SUCCESS);
  }
  SECTION("several launches in one call") {
    CUDA_LAUNCH_PARAMS launch{scene.fill, 1, 1, 1, 1, 1, 1, 0, stream, params};
    const cuLaunchCooperativeKernelMultiDevice_params call{&launch, 1, 0};
    CHECK(scene.interceptor->launch(CONVTRACE_LAUNCH_MULTI_DEVICE, false, &call,
                                    real_multi_launch) == CUDA_SUCCESS);
  }
  SECTION("a graph") { CHECK(graph.launch() == CUDA_SUCCESS); }
  SECTION("a copy") { CHECK(cuMemcpyHtoD(other, one, sizeof one) == CUDA_SUCCESS); }
  SECTION("a copy in a stream") {
    CHECK(cuMemcpyDtoDAsync(scene.memory, other, 64, stream) == CUDA_SUCCESS);
  }
  SECTION("a set") { CHECK(cuMemsetD8Async(scene.memory, 1, 64, nullptr) == CUDA_SUCCESS); }
  SECTION("a free") { CHECK(cuMemFree(std::exchange(other, 0)) == CUDA_SUCCESS); }
  SECTION("a free in a stream") {
    CHECK(cuMemFreeAsync(std::exchange(ordered, 0), stream) == CUDA_SUCCESS);
  }
  SECTION("a wait of a stream") { CHECK(cuStreamWaitEvent(nullptr, event, 0) == CUDA_SUCCESS); }
  SECTION("a wait of the host") { CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS); }
  CHECK(scene.read({scene.request()}) == 1);
  CHECK(scene.read({scene.request()}) == 0);
  if (other != 0) cuMemFree(other);
  if (ordered != 0) cuMemFreeAsync(ordered, stream);
  cuEventDestroy(event);
  cuStreamDestroy(stream);
}

TEST_CASE("same value: a stream takes no result of another one") {
  Reading scene;
  std::vector<CUstream> streams(2 * ResultRing::kLanes);
  for (CUstream& stream : streams)
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  for (CUstream stream : streams) CHECK(scene.read({scene.request()}, stream) == 1);
  for (CUstream stream : streams) cuStreamDestroy(stream);
}

/// @return how many kernels two reads of the same memory take.
uint64_t read_twice(Reading& scene, CUdeviceptr at = 0) {
  const DeviceRequest request = scene.request(Capture::kStats, kElements, at);
  return scene.read({request}) + scene.read({request});
}

TEST_CASE("same value: memory that others can write is read each time") {
  Reading scene;
  CHECK(read_twice(scene) == 1);
  SECTION("of the host") {
    void* pinned = nullptr;
    REQUIRE(cuMemHostAlloc(&pinned, 64, 0) == CUDA_SUCCESS);
    CHECK(read_twice(scene, reinterpret_cast<CUdeviceptr>(pinned)) == 2);
    CHECK(cuMemFreeHost(pinned) == CUDA_SUCCESS);
  }
  SECTION("of another process") {
    CUdeviceptr foreign = 0;
    REQUIRE(cuIpcOpenMemHandle(&foreign, {}, 0) == CUDA_SUCCESS);
    CHECK(read_twice(scene, foreign) == 2);
    CHECK(cuIpcCloseMemHandle(foreign) == CUDA_SUCCESS);
  }
  SECTION("managed, once there is some") {
    CUdeviceptr managed = 0;
    REQUIRE(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(read_twice(scene, managed) == 2);
    CHECK(cuMemFree(managed) == CUDA_SUCCESS);
  }
}

TEST_CASE("same value: where not every call is seen a value is read each time") {
  SECTION("CUPTI is given away") {
    Reading scene;
    scene.interceptor->give_cupti_away();
    CHECK(read_twice(scene) == 2);
  }
  SECTION("CUPTI has ended in silence") {
    Reading scene;
    REQUIRE(cuptiFinalize() == CUPTI_SUCCESS);
    REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
    CHECK(read_twice(scene) == 2);
  }
  SECTION("CUPTI is older than some of the calls that the driver may have") {
    setenv("FAKECUDA_CUPTI_NEWEST_CBID", "665", 1);
    Reading scene;
    unsetenv("FAKECUDA_CUPTI_NEWEST_CBID");
    CHECK(read_twice(scene) == 2);
  }
  SECTION("memory is filled with a pattern") {
    Reading scene([](InterceptorOptions& options) { options.poison = true; });
    CHECK(read_twice(scene) == 2);
  }
}

TEST_CASE("same value: a long run has the values of the host") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensors[] = {Twin(64, 1), Twin(96, 2), Twin(64, 3), Twin(128, 4), Twin(32, 5)};
  std::mt19937 random(7);
  std::vector<stats::StatsResult> expected;
  constexpr size_t kRequests = 3 * ResultRing::kSlots;
  const uint64_t before = fakecuda_launches();
  uint64_t moment = 1;
  size_t asked = 0, batches = 0;
  for (; asked < kRequests; ++batches) {
    std::vector<DeviceRequest> batch;
    for (uint32_t i = random() % 4 + 1; i > 0; --i) {
      const Twin& tensor = tensors[random() % std::size(tensors)];
      const auto capture = random() % 2 == 0 ? Capture::kHash : Capture::kStats;
      DeviceRequest& request = batch.emplace_back(tensor.request(DType::kF32, capture));
      request.moment = random() % 32 == 0 ? 0 : moment;
      expected.push_back(tensor.on_cpu(request));
    }
    REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
    asked += batch.size();
    if (random() % 32 == 0) ++moment;
    if (random() % 64 == 0) scene.collect();
  }
  CHECK(fakecuda_launches() - before < 2 * batches * 3 / 4);  // a batch that is read takes two
  const auto results = scene.results();
  CHECK(scene.collect() == 0);
  REQUIRE(results.size() == asked);
  size_t equal = 0;
  for (size_t i = 0; i < asked; ++i)
    equal += test::same_bits(results[i].stats, expected[i].stats) ? 1 : 0;
  CHECK(equal == asked);
}

TEST_CASE("same value: where the launch fails nothing of its batch comes out") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  DeviceRequest request = tensor.request();
  request.moment = 1;
  scene.driver.launch_kernel = [](auto...) { return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; };
  CHECK(scene.submit({request, request}) == SampleOutcome::kGpuWorkOff);
  CHECK(scene.submit({request}) == SampleOutcome::kGpuWorkOff);
  CHECK(scene.results().empty());
  CHECK(scene.collect() == 0);
}

}  // namespace
}  // namespace convtrace::cupti
