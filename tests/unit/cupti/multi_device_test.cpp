// One call that launches on several devices.

#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::SampleOutcome;

using Params = cuLaunchCooperativeKernelMultiDevice_params;

TEST_CASE("multi-device: launches through the gate have operands and values") {
  settings::Rule rule = rule_for("fill*");
  rule.inputs = {0};
  Scene scene({rule});
  scene.await_preparation();
  CUcontext contexts[2] = {scene.context, nullptr};
  CUfunction functions[2] = {scene.fill, nullptr};
  CUdeviceptr memory[2] = {scene.memory, 0};
  CUmodule module = nullptr;
  REQUIRE(cuCtxCreate(&contexts[1], nullptr, 0, 1) == CUDA_SUCCESS);
  REQUIRE(cuModuleLoadData(&module, &kImage) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&functions[1], module, "_Z4fillPffj") == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&memory[1], 64) == CUDA_SUCCESS);
  scene.await_preparation(1);
  float value = 2;
  uint32_t count = 16;
  void* params[2][3] = {{&memory[0], &value, &count}, {&memory[1], &value, &count}};
  CUDA_LAUNCH_PARAMS list[2] = {};
  for (int i = 0; i < 2; ++i) {
    CUstream stream = nullptr;
    REQUIRE(cuCtxSetCurrent(contexts[i]) == CUDA_SUCCESS);
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    list[i] = {functions[i], 1, 1, 1, 1, 1, 1, 0, stream, params[i]};
  }
  const size_t before = scene.sink.all<format::TensorStats>().size();
  const Params call{list, 2, 0};
  REQUIRE(scene.interceptor->launch(CONVTRACE_LAUNCH_MULTI_DEVICE, false, &call,
                                    real_multi_launch) == CUDA_SUCCESS);
  scene.interceptor->collect();
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2);
  for (uint8_t i = 0; i < 2; ++i) {
    CHECK(launches[i].sampled == SampleOutcome::kSampled);
    CHECK(launches[i].device == i);
    CHECK(launches[i].operands.size() == 1);
  }
  CHECK(scene.sink.all<format::TensorStats>().size() == before + 4);
  scene.interceptor->stop(0);
  CHECK(scene.sink.all<format::Diagnostic>().empty());  // CUPTI saw the same
  CHECK(cuCtxDestroy(contexts[1]) == CUDA_SUCCESS);
}

TEST_CASE("multi-device: a list of nothing is the driver's to refuse") {
  Scene scene;
  const Params call{nullptr, 2, 0};
  const auto refuse = [](const void*) { return static_cast<int>(CUDA_ERROR_INVALID_VALUE); };
  CHECK(scene.interceptor->launch(CONVTRACE_LAUNCH_MULTI_DEVICE, false, &call, refuse) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(scene.sink.all<Launch>().empty());
}

TEST_CASE("multi-device: past the gate they are seen by CUPTI alone") {
  Scene scene;
  float value = 2;
  uint32_t count = 16;
  void* params[] = {&scene.memory, &value, &count};
  CUstream streams[2] = {};
  CUDA_LAUNCH_PARAMS list[2] = {};
  for (int i = 0; i < 2; ++i) {
    REQUIRE(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    list[i] = {scene.fill, 1, 1, 1, 1, 1, 1, 0, streams[i], params};
  }
  const Params call{list, 2, 0};
  REQUIRE(real_multi_launch(&call) == CUDA_SUCCESS);  // past the gate
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 3);
  CHECK(launches[0].sampled == SampleOutcome::kObservedOnly);
  CHECK(launches[1].sampled == SampleOutcome::kObservedOnly);
  CHECK(launches[2].sampled == SampleOutcome::kNotAsked);
  CHECK(launches[2].operands.size() == 1);
}

}  // namespace
}  // namespace convtrace::cupti
