#pragma once
/// @file cuda_scene.h
/// All of cupti/ in this process, over the fake driver and the fake CUPTI, with one context, one
/// kernel and one buffer.

#include <cuda.h>
#include <cupti.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cupti/interceptor.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/support/catch.h"
#include "tests/unit/cupti/collecting_sink.h"

namespace convtrace::cupti {

inline void run_fill(const fakecuda_launch* launch) {
  const auto address = *static_cast<const uint64_t*>(launch->params[0]);
  const auto value = *static_cast<const float*>(launch->params[1]);
  const auto count = *static_cast<const uint32_t*>(launch->params[2]);
  auto* data = static_cast<float*>(launch->device(address, count * sizeof(float)));
  for (uint32_t i = 0; data != nullptr && i < count; ++i) data[i] = value;
}

inline constexpr unsigned kFillParams[] = {8, 4, 4};
inline constexpr fakecuda_kernel kKernels[] = {{"_Z4fillPffj", run_fill, 3, kFillParams}};
inline constexpr fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

inline std::atomic<int> real_calls{0};

/// The driver's call, as the stub's wrapper makes it.
inline int real_launch(const void* params) {
  const auto& p = *static_cast<const cuLaunchKernel_params*>(params);
  real_calls.fetch_add(1);
  return cuLaunchKernel(p.f, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                        p.blockDimZ, p.sharedMemBytes, p.hStream, p.kernelParams, p.extra);
}

/// A launch of the program's, through the gate.
inline int launch_kernel(Interceptor& interceptor, const cuLaunchKernel_params& params,
                         bool per_thread = false, convtrace_launch_fn real = real_launch) {
  return interceptor.launch(CONVTRACE_LAUNCH_KERNEL, per_thread, &params, real);
}

inline int real_multi_launch(const void* given) {
  const auto& p = *static_cast<const cuLaunchCooperativeKernelMultiDevice_params*>(given);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return cuLaunchCooperativeKernelMultiDevice(p.launchParamsList, p.numDevices, p.flags);
#pragma GCC diagnostic pop
}

inline int launch_one_thread(Interceptor& interceptor, CUfunction function, CUstream stream,
                             void** params) {
  return launch_kernel(interceptor, {function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr});
}

inline int launch_graph(Interceptor& interceptor, CUgraphExec exec, CUstream stream) {
  const cuGraphLaunch_params params{exec, stream};
  return interceptor.launch(CONVTRACE_LAUNCH_GRAPH, false, &params, [](const void* given) {
    const auto& p = *static_cast<const cuGraphLaunch_params*>(given);
    return static_cast<int>(cuGraphLaunch(p.hGraph, p.hStream));
  });
}

inline Position position_of_step_3() noexcept {
  Position position;
  position.step = 3;
  return position;
}

inline settings::Rule rule_for(const char* pattern) {
  settings::Rule rule;
  rule.kernel = settings::Pattern::compile(pattern).value();
  rule.outputs = {0};
  rule.dtype = format::DType::kF32;
  return rule;
}

/// What a scene's interceptor calls before it looks at memory; a test that sets it resets it.
inline bool (*apply_memory_reports)(bool all) noexcept = nullptr;

/// As submit(). One call waits a second for its context's preparation; under a sanitizer on a busy
/// machine that is not enough.
inline format::SampleOutcome submit_when_ready(Interceptor& interceptor,
                                               std::span<DeviceRequest> batch) {
  format::SampleOutcome outcome = interceptor.submit(batch, 0);
  for (int i = 0; i < 6000 && outcome == format::SampleOutcome::kNotReady; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    outcome = interceptor.submit(batch, 0);
  }
  return outcome;
}

struct Scene {
  explicit Scene(std::vector<settings::Rule> rules_in = {},
                 void (*change)(InterceptorOptions&) = nullptr)
      : rules(std::move(rules_in)) {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    real_calls = 0;
    InterceptorOptions options;
    options.sink = &sink;
    options.definitions = &definitions;
    options.addresses = &addresses;
    options.position = &position_of_step_3;
    options.apply_memory_reports = apply_memory_reports;
    options.rules = &rules;
    if (change != nullptr) change(options);
    interceptor = std::make_unique<Interceptor>(options);
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, &kImage) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&fill, module, "_Z4fillPffj") == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc(&memory, 64) == CUDA_SUCCESS);
  }
  ~Scene() {
    interceptor->stop(1'000'000'000);
    cuModuleUnload(module);
    cuCtxDestroy(context);
  }

  /// Launches through the gate, as a program under the stub does.
  int launch(CUfunction function, CUstream stream = nullptr, bool per_thread = false) {
    float value = 2;
    uint32_t count = 16;
    void* params[] = {&memory, &value, &count};
    return launch_kernel(*interceptor, {function, 2, 3, 1, 32, 1, 1, 64, stream, params, nullptr},
                         per_thread);
  }

  /// As an observer's request does: waits until values can be computed in the current context.
  void await_preparation(uint8_t device = 0) {
    DeviceRequest request;
    request.event.device = {format::Device::Type::kCuda, device};
    request.view =
        stats::dense_view(reinterpret_cast<const void*>(memory), format::DType::kF32, 16);
    REQUIRE(submit_when_ready(*interceptor, {&request, 1}) == format::SampleOutcome::kSampled);
    interceptor->collect();
  }

  std::string name(format::KernelId kernel) const {
    return std::string(definitions.text(definitions.kernel(kernel).name));
  }

  CollectingSink sink;
  format::Definitions definitions;
  settings::RuleBook rules;
  AddressMap addresses;
  std::unique_ptr<Interceptor> interceptor;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  CUdeviceptr memory = 0;
};

}  // namespace convtrace::cupti
