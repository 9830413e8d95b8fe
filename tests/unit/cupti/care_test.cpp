#include <cuda.h>

#include <utility>
#include <vector>

#include "tests/fakecuda/hook.h"
#include "tests/unit/cupti/cuda_scene.h"

// Memory that others may be writing, kernels that wait for others, memory without an end.

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::SampleOutcome;

/// As an observer asks for a tensor of the scene's memory.
format::TensorStats tensor_at(Scene& scene, uint64_t address, format::Device::Type type) {
  format::TensorStats event;
  event.device = {type, 0};
  event.value.generation = scene.addresses.find(address).value().generation;
  return event;
}

TEST_CASE("care: a tensor is settled in the stream that used it, and behind its event") {
  Scene scene;
  CUstream streams[2] = {};
  CUevent event = nullptr;
  for (CUstream& stream : streams)
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  const auto is_settled = [&](CUstream stream) {
    return scene.interceptor->is_settled(
        tensor_at(scene, scene.memory, format::Device::Type::kCuda),
        reinterpret_cast<uint64_t>(stream));
  };
  CUdeviceptr const memory = std::exchange(scene.memory, 0);
  REQUIRE(cuMemAlloc(&scene.memory, 64) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill, streams[0]) == CUDA_SUCCESS);
  scene.memory = memory;
  CHECK(is_settled(streams[0]));
  SECTION("a launch") { REQUIRE(scene.launch(scene.fill, streams[1]) == CUDA_SUCCESS); }
  SECTION("a launch past the gate") {
    REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);  // the driver was asked for its parameters
    REQUIRE(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
    float value = 2;
    uint32_t count = 16;
    void* params[] = {&scene.memory, &value, &count};
    REQUIRE(cuLaunchKernel(scene.fill, 1, 1, 1, 1, 1, 1, 0, streams[1], params, nullptr) ==
            CUDA_SUCCESS);
  }
  SECTION("a set") { REQUIRE(cuMemsetD32Async(scene.memory, 1, 16, streams[1]) == CUDA_SUCCESS); }
  CHECK(is_settled(streams[1]));
  CHECK_FALSE(is_settled(streams[0]));
  REQUIRE(cuEventRecord(event, streams[1]) == CUDA_SUCCESS);
  CHECK_FALSE(is_settled(streams[0]));
  REQUIRE(cuStreamWaitEvent(streams[0], event, 0) == CUDA_SUCCESS);
  CHECK(is_settled(streams[0]));
}

TEST_CASE("care: a copy to the host is settled when the host has waited for it") {
  Scene scene;
  void* pinned = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  REQUIRE(cuMemHostAlloc(&pinned, 64, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  const auto is_settled = [&] {
    return scene.interceptor->is_settled(
        tensor_at(scene, reinterpret_cast<uint64_t>(pinned), format::Device::Type::kCpu), 0);
  };
  CHECK(is_settled());
  REQUIRE(cuMemcpyHtoDAsync(scene.memory, pinned, 64, stream) == CUDA_SUCCESS);
  CHECK(is_settled());  // it is only read
  fakecuda::fakecuda_hold(stream);
  REQUIRE(cuMemcpyDtoHAsync(pinned, scene.memory, 64, stream) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK_FALSE(is_settled());
  REQUIRE(cuEventSynchronize(event) == CUDA_SUCCESS);
  CHECK(is_settled());
  REQUIRE(cuMemcpyDtoH(pinned, scene.memory, 64) == CUDA_SUCCESS);  // waits
  CHECK(is_settled());
}

TEST_CASE("care: nothing is inserted around a kernel that may wait for others") {
  constexpr fakecuda_kernel kernels[] = {
      {"multimem_one_shot_all_reduce_kernel", run_fill, 3, kFillParams}};
  static const fakecuda_image image = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kernels};
  Scene scene({rule_for("*")});
  scene.await_preparation();
  CUmodule module = nullptr;
  CUfunction waits = nullptr;
  REQUIRE(cuModuleLoadData(&module, &image) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&waits, module, kernels[0].name) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  REQUIRE(scene.launch(waits) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2);
  CHECK(launches[0].sampled == SampleOutcome::kSampled);
  CHECK(launches[1].sampled == SampleOutcome::kMayWait);
  CHECK(launches[1].operands.size() == 1);
}

TEST_CASE("care: of a range without known blocks a rule takes the beginning, and says so once") {
  constexpr size_t kBytes = size_t{80} << 20;
  constexpr size_t kMost = size_t{64} << 20;
  settings::Rule rule = rule_for("fill*");
  rule.capture = format::Capture::kHash;
  Scene scene({rule});
  scene.await_preparation();
  CUdeviceptr const small = scene.memory;
  REQUIRE(cuMemAlloc(&scene.memory, kBytes) == CUDA_SUCCESS);
  MemoryRange block;  // that a framework tells of
  block.base = scene.memory;
  block.bytes = kMost + 4096;
  block.source = format::MemorySource::kFramework;
  block.device = {format::Device::Type::kCuda, 0};
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  (void)scene.addresses.allocate(block);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1 + 3);
  CHECK(values[1].bytes == kMost);
  CHECK(values[2].bytes == kMost);
  CHECK(values[3].bytes == block.bytes);
  CHECK(scene.sink.all<format::Diagnostic>().size() == 1);
  REQUIRE(cuMemFree(scene.memory) == CUDA_SUCCESS);
  scene.memory = small;
}

}  // namespace
}  // namespace convtrace::cupti
