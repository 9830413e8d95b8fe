#include "cupti/interceptor.h"

#include <cuda.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/cupti/cuda_scene.h"

// The whole of cupti/ in this process, over the fake driver and the fake CUPTI.

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::SampleOutcome;

TEST_CASE("interceptor: a launch through the gate is recorded once, with its operands") {
  Scene scene;
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 1);
  const Launch& launch = launches[0];
  CHECK(real_calls == 1);
  CHECK(scene.name(launch.kernel) == "_Z4fillPffj");
  CHECK(launch.header.step == 3);
  CHECK(launch.grid[0] == 2);
  CHECK(launch.grid[1] == 3);
  CHECK(launch.block[0] == 32);
  CHECK(launch.shared_bytes == 64);
  CHECK(launch.sampled == SampleOutcome::kNotAsked);
  REQUIRE(launch.operands.size() == 1);
  CHECK(launch.operands[0].address == scene.memory);
  CHECK(launch.operands[0].generation == scene.sink.all<format::Alloc>()[0].generation);

  float result[16] = {};
  REQUIRE(cuMemcpyDtoH(result, scene.memory, sizeof result) == CUDA_SUCCESS);
  CHECK(result[0] == 2);
  CHECK(result[15] == 2);
}

TEST_CASE("interceptor: a launch that CUPTI sees outside the gate is recorded as observed only") {
  Scene scene;
  float value = 2;
  uint32_t count = 16;
  void* params[] = {&scene.memory, &value, &count};
  REQUIRE(cuLaunchKernel(scene.fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr) ==
          CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 1);
  CHECK(launches[0].sampled == SampleOutcome::kObservedOnly);
  CHECK(scene.name(launches[0].kernel) == "_Z4fillPffj");
  CHECK(launches[0].operands.empty());
  scene.interceptor->stop(0);
  const auto said = scene.sink.all<format::Diagnostic>();
  REQUIRE(said.size() == 1);
  CHECK(said[0].level == format::Level::kInfo);
  CHECK(said[0].message.starts_with("CT-1405 1 launches"));
}

TEST_CASE("interceptor: CUPTI's view of gated launches agrees with the gate's") {
  Scene scene;
  for (int i = 0; i < 3; ++i) REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  scene.interceptor->stop(0);
  CHECK(scene.sink.all<Launch>().size() == 3);
  CHECK(scene.sink.all<format::Diagnostic>().empty());
}

Interceptor* nested_interceptor = nullptr;

int launch_inside_launch(const void* params) {
  return nested_interceptor->launch(CONVTRACE_LAUNCH_KERNEL, false, params, real_launch);
}

TEST_CASE("interceptor: a launch made by a launch passes through, recorded once") {
  Scene scene;
  nested_interceptor = scene.interceptor.get();
  float value = 2;
  uint32_t count = 16;
  void* params[] = {&scene.memory, &value, &count};
  REQUIRE(launch_kernel(*scene.interceptor,
                        {scene.fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr}, false,
                        launch_inside_launch) == CUDA_SUCCESS);
  CHECK(real_calls == 1);
  CHECK(scene.sink.all<Launch>().size() == 1);
}

TEST_CASE("interceptor: the driver's result comes back and a failed launch is marked") {
  Scene scene;
  uint32_t nothing = 0;
  void* params[] = {&scene.memory, &nothing, &nothing};
  const int result = launch_kernel(*scene.interceptor,
                                   {scene.fill, 0, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr});
  CHECK(result == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(scene.sink.all<Launch>().size() == 1);
  CHECK(scene.sink.all<Launch>()[0].sampled == SampleOutcome::kLaunchFailed);
}

TEST_CASE("interceptor: a kernel handle's parameters are asked by the kernel's query") {
  Scene scene;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  REQUIRE(cuLibraryLoadData(&library, &kImage, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  REQUIRE(cuLibraryGetKernel(&kernel, library, "_Z4fillPffj") == CUDA_SUCCESS);
  REQUIRE(scene.launch(reinterpret_cast<CUfunction>(kernel)) == CUDA_SUCCESS);
  REQUIRE(scene.sink.all<Launch>().size() == 1);
  CHECK(scene.sink.all<Launch>()[0].operands.size() == 1);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
}

TEST_CASE("interceptor: every way to launch is recorded with its shape") {
  Scene scene;
  float value = 1;
  uint32_t count = 1;
  void* params[] = {&scene.memory, &value, &count};
  CUlaunchConfig config{};
  config.gridDimX = 7;
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  const cuLaunchKernelEx_params call{&config, scene.fill, params, nullptr};
  const auto real = [](const void* given) {
    const auto& p = *static_cast<const cuLaunchKernelEx_params*>(given);
    return static_cast<int>(cuLaunchKernelEx(p.config, p.f, p.kernelParams, p.extra));
  };
  REQUIRE(scene.interceptor->launch(CONVTRACE_LAUNCH_KERNEL_EX, true, &call, real) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 1);
  CHECK(launches[0].grid[0] == 7);
  CHECK(launches[0].stream == 2);  // per-thread default stream
  CHECK(launches[0].operands.size() == 1);
}

TEST_CASE("interceptor: a launch function of a newer stub is passed through") {
  Scene scene;
  const auto real = [](const void* given) { return *static_cast<const int*>(given); };
  const int answer = 77;
  CHECK(scene.interceptor->launch(static_cast<convtrace_launch_call>(5), false, &answer, real) ==
        77);
  CHECK(scene.sink.all<Launch>().empty());
}

TEST_CASE("interceptor: allocations and frees of the program are recorded, in its context") {
  Scene scene;
  CUdeviceptr pool = 0;
  void* host = nullptr;
  REQUIRE(cuMemAllocAsync(&pool, 128, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuMemHostAlloc(&host, 4096, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemFreeAsync(pool, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuMemFreeHost(host) == CUDA_SUCCESS);
  REQUIRE(cuMemFree(scene.memory) == CUDA_SUCCESS);
  CHECK(cuMemFree(scene.memory) == CUDA_ERROR_INVALID_VALUE);
  const auto allocs = scene.sink.all<format::Alloc>();
  const auto frees = scene.sink.all<format::Free>();
  REQUIRE(allocs.size() == 3);
  REQUIRE(frees.size() == 3);
  CHECK(allocs[0].bytes == 64);
  CHECK(allocs[0].device.type == format::Device::Type::kCuda);
  CHECK(allocs[1].source == format::MemorySource::kStreamOrdered);
  CHECK(frees[0].generation == allocs[1].generation);
  CHECK(frees[1].source == format::MemorySource::kHost);
  CHECK(frees[2].generation == allocs[0].generation);
  CHECK(scene.addresses.live_count() == 0);
}

TEST_CASE("interceptor: mapped virtual memory is an allocation, address space is not") {
  Scene scene;
  constexpr size_t kGranule = 2 << 20;
  CUdeviceptr base = 0;
  REQUIRE(cuMemAddressReserve(&base, 2 * kGranule, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Alloc>().size() == 1);
  REQUIRE(cuMemMap(base, kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(base + kGranule, kGranule, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Alloc>().size() == 3);
  REQUIRE(cuMemUnmap(base, 2 * kGranule) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Free>().size() == 2);
}

TEST_CASE("interceptor: copies to the device are recorded") {
  Scene scene;
  const float values[16] = {};
  REQUIRE(cuMemcpyHtoD(scene.memory, values, sizeof values) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(scene.memory, 5, 4) == CUDA_SUCCESS);
  const auto copies = scene.sink.all<format::Copy>();
  REQUIRE(copies.size() == 2);
  CHECK(copies[0].destination == scene.memory);
  CHECK(copies[0].bytes == 64);
  CHECK(copies[1].kind == format::Copy::Kind::kSet);
  CHECK(copies[1].bytes == 16);
}

TEST_CASE("interceptor: a rule whose output is no known memory says so") {
  settings::Rule rule = rule_for("fill*");
  rule.outputs = {2};  // a number
  Scene scene({rule});
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>()[0].sampled == SampleOutcome::kNoOutput);
}

TEST_CASE("interceptor: memory of another device or of the host is not read for a rule") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  using format::Device;
  for (const Device device : {Device{Device::Type::kCuda, 1}, Device{Device::Type::kCpu, 0}}) {
    MemoryRange range;
    range.base = scene.memory;
    range.bytes = 64;
    range.device = device;
    scene.addresses.allocate(range);
    REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
    CHECK(scene.sink.all<format::Launch>().back().sampled == SampleOutcome::kNoOutput);
  }
}

namespace {

AddressMap* allocator_map = nullptr;
CUdeviceptr allocator_block = 0;

/// An allocator's report that was made just before the launch.
bool report_one_block(bool all) noexcept {
  if (!all) return false;
  MemoryRange block;
  block.base = allocator_block;
  block.bytes = 32;
  block.source = format::MemorySource::kFramework;
  block.device = {format::Device::Type::kCuda, 0};
  allocator_map->allocate(block);
  return true;
}

}  // namespace

TEST_CASE("interceptor: a block that was allocated just before a launch has its own extent") {
  apply_memory_reports = report_one_block;
  {
    Scene scene({rule_for("fill*")});
    allocator_map = &scene.addresses;
    allocator_block = scene.memory;
    scene.await_preparation();
    REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
    scene.interceptor->collect();
    CHECK(scene.sink.all<format::TensorStats>().back().bytes == 32);  // not the driver's 64
    CHECK(scene.sink.all<format::Launch>().back().operands[0].generation ==
          scene.sink.all<format::TensorStats>().back().value.generation);
  }
  apply_memory_reports = nullptr;
}

TEST_CASE("interceptor: where reports of allocators are not in, a pointer is worth a word") {
  apply_memory_reports = report_one_block;
  {
    Scene scene;
    REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
    CHECK(scene.sink.all<format::Launch>().back().operands[0].confidence ==
          format::Confidence::kWordBase);
  }
  apply_memory_reports = nullptr;
}

TEST_CASE("interceptor: a rule for other steps asks nothing of this one") {
  settings::Rule rule = rule_for("fill*");
  rule.steps = settings::StepSet::parse_steps("4-").value();
  Scene scene({rule});
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>()[0].sampled == SampleOutcome::kNotAsked);
}

TEST_CASE("interceptor: values are computed on the device where the tensor lies") {
  Scene scene;
  CUcontext other = nullptr;
  CUdeviceptr there = 0;
  REQUIRE(cuCtxCreate(&other, nullptr, 0, 1) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&there, 64) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(scene.context) == CUDA_SUCCESS);
  const auto submit = [&](uint8_t device) {
    DeviceRequest request;
    request.view = stats::dense_view(reinterpret_cast<const void*>(there), format::DType::kF32, 16);
    request.event.dtype = format::DType::kF32;
    request.event.device = {format::Device::Type::kCuda, device};
    return submit_when_ready(*scene.interceptor, {&request, 1});
  };
  CHECK(submit(1) == SampleOutcome::kSampled);
  CUcontext current = nullptr;
  REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == scene.context);
  CHECK(submit(2) == SampleOutcome::kWrongStream);  // no context is known there
  scene.interceptor->collect();
  CHECK(scene.sink.all<format::TensorStats>().size() == 1);

  // Two contexts on one device: which of them the tensor is of is not known.
  CUcontext third = nullptr;
  REQUIRE(cuCtxCreate(&third, nullptr, 0, 1) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&there, 64) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(scene.context) == CUDA_SUCCESS);
  CHECK(submit(1) == SampleOutcome::kWrongStream);
  CHECK(cuCtxDestroy(third) == CUDA_SUCCESS);
  CHECK(cuCtxDestroy(other) == CUDA_SUCCESS);
}

TEST_CASE("interceptor: when another tool holds CUPTI it is named and the gate records on") {
  setenv("FAKECUDA_CUPTI_HOLDER", "CUPTI for Nsight Systems", 1);
  Scene scene;
  unsetenv("FAKECUDA_CUPTI_HOLDER");
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  const auto diagnostics = scene.sink.all<format::Diagnostic>();
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].message.find("Nsight Systems") != std::string_view::npos);
  REQUIRE(scene.sink.all<Launch>().size() == 1);
  CHECK(scene.name(scene.sink.all<Launch>()[0].kernel) == "_Z4fillPffj");
  CHECK(scene.sink.all<format::Alloc>().empty());
}

TEST_CASE("interceptor: after stop the gate only passes calls on") {
  Scene scene;
  scene.interceptor->stop(0);
  CHECK(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(real_calls == 1);
  CHECK(scene.sink.all<Launch>().empty());
  CUdeviceptr more = 0;
  CHECK(cuMemAlloc(&more, 64) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Alloc>().size() == 1);
}

TEST_CASE("interceptor: results come out a bounded number at a time, all of them by the end") {
  Scene scene;
  DeviceRequest request;
  request.view =
      stats::dense_view(reinterpret_cast<const void*>(scene.memory), format::DType::kF32, 16);
  std::vector<DeviceRequest> batch(Interceptor::kMaxCollected + 100, request);
  REQUIRE(submit_when_ready(*scene.interceptor, batch) == SampleOutcome::kSampled);
  CHECK(scene.interceptor->collect());
  CHECK(scene.sink.all<format::TensorStats>().size() == Interceptor::kMaxCollected);
  SECTION("the next call gives the rest") { CHECK_FALSE(scene.interceptor->collect()); }
  SECTION("the end gives the rest") { scene.interceptor->stop(10'000'000'000); }
  CHECK(scene.sink.all<format::TensorStats>().size() == batch.size());
  CHECK(scene.sink.all<format::Loss>().empty());
}

TEST_CASE("interceptor: facts name the driver, CUPTI and each device in use") {
  Scene scene;
  scene.interceptor->collect();
  const auto list = scene.interceptor->facts();
  const std::map<std::string, std::string> facts(list.begin(), list.end());
  CHECK(facts.at("version.driver") == "13.0");
  CHECK(facts.contains("version.cupti"));
  CHECK(facts.at("device.0.name") == "Fake device 0");
  CHECK(facts.at("device.0.capability") == "9.0");
  scene.interceptor->collect();
  CHECK(scene.interceptor->facts().size() == list.size());
}

TEST_CASE("interceptor: it is said once where the driver has to compile the kernels") {
  const std::string capability =
      GENERATE(as<std::string>(), "75", "80", "89", "91", "103", "110", "121", "130");
  CAPTURE(capability);
  setenv("FAKECUDA_CAPABILITY", capability.c_str(), 1);
  Scene scene;
  scene.interceptor->collect();
  scene.interceptor->collect();
  unsetenv("FAKECUDA_CAPABILITY");
  const auto said = scene.sink.all<format::Diagnostic>();
  REQUIRE(said.size() == (capability == "130" ? 1 : 0));
  if (!said.empty()) CHECK(said[0].message.find("CT-1412") == 0);
}

TEST_CASE("interceptor: threads launch, allocate and free at once and nothing is lost") {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  Scene scene;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(scene.context);
      for (int i = 0; i < kRounds; ++i) {
        CUdeviceptr mine = 0;
        float value = 1;
        uint32_t count = 4;
        if (cuMemAlloc(&mine, 64) != CUDA_SUCCESS) ++failures;
        void* params[] = {&mine, &value, &count};
        if (launch_kernel(*scene.interceptor,
                          {scene.fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr},
                          true) != CUDA_SUCCESS)
          ++failures;
        if (cuMemFree(mine) != CUDA_SUCCESS) ++failures;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failures == 0);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == kThreads * kRounds);
  for (const Launch& launch : launches) CHECK(launch.operands.size() == 1);
  CHECK(scene.sink.all<format::Alloc>().size() == kThreads * kRounds + 1);
  CHECK(scene.sink.all<format::Free>().size() == kThreads * kRounds);
}

// In a process of its own: a lost context is lost for the process.
TEST_CASE("interceptor: a lost context is reported once and ends our GPU work") {
  Scene scene({rule_for("fill*")});
  REQUIRE(cuMemFree(scene.memory) == CUDA_SUCCESS);
  CHECK(scene.launch(scene.fill) == CUDA_SUCCESS);  // runs into freed memory
  CHECK(scene.launch(scene.fill) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(scene.launch(scene.fill) == CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto diagnostics = scene.sink.all<format::Diagnostic>();
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].message.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string_view::npos);
  CHECK(scene.sink.all<Launch>().size() == 3);
}

}  // namespace
}  // namespace convtrace::cupti
