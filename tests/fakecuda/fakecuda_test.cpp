#include "tests/fakecuda/fakecuda.h"

#include <cuda.h>
#include <cupti.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace {

/// out[i] = in[i] * factor
void run_scale(const fakecuda_launch* launch) {
  const auto in = *static_cast<const uint64_t*>(launch->params[0]);
  const auto out = *static_cast<const uint64_t*>(launch->params[1]);
  const auto factor = *static_cast<const float*>(launch->params[2]);
  const auto count = *static_cast<const uint64_t*>(launch->params[3]);
  const auto* source = static_cast<const float*>(launch->device(in, count * sizeof(float)));
  auto* target = static_cast<float*>(launch->device(out, count * sizeof(float)));
  if (source == nullptr || target == nullptr) return;
  for (uint64_t i = 0; i < count; ++i) target[i] = source[i] * factor;
}

constexpr unsigned kScaleParams[] = {8, 8, 4, 8};
constexpr fakecuda_kernel kKernels[] = {{"scale", run_scale, 4, kScaleParams}};
constexpr fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

struct Device {
  Device() {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, &kImage) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
  }
  ~Device() {
    cuModuleUnload(module);
    cuCtxDestroy(context);
  }

  CUdeviceptr upload(const std::vector<float>& values) {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAlloc(&address, values.size() * sizeof(float)) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoD(address, values.data(), values.size() * sizeof(float)) == CUDA_SUCCESS);
    return address;
  }
  static std::vector<float> download(CUdeviceptr address, size_t count) {
    std::vector<float> values(count);
    REQUIRE(cuMemcpyDtoH(values.data(), address, count * sizeof(float)) == CUDA_SUCCESS);
    return values;
  }
  CUresult launch(CUdeviceptr in, CUdeviceptr out, float factor, uint64_t count,
                  CUstream stream = nullptr) {
    void* params[] = {&in, &out, &factor, &count};
    return cuLaunchKernel(scale, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction scale = nullptr;
};

TEST_CASE("fakecuda: a kernel computes on device memory") {
  Device device;
  const CUdeviceptr in = device.upload({1, 2, 3});
  const CUdeviceptr out = device.upload({0, 0, 0});
  REQUIRE(device.launch(in, out, 2, 3) == CUDA_SUCCESS);
  CHECK(Device::download(out, 3) == std::vector<float>{2, 4, 6});
  CHECK(cuMemFree(in) == CUDA_SUCCESS);
  CHECK(cuMemFree(in) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("fakecuda: the host cannot touch device memory") {
  Device device;
  const CUdeviceptr address = device.upload({1});
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*reinterpret_cast<volatile char*>(address) == 0 ? 1 : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_FALSE((WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2)));
}

TEST_CASE("fakecuda: arguments may come in one buffer") {
  Device device;
  const CUdeviceptr in = device.upload({3});
  const CUdeviceptr out = device.upload({0});
  struct {
    CUdeviceptr in, out;
    float factor;
    uint64_t count;
  } buffer{in, out, 5, 1};
  size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  REQUIRE(cuLaunchKernel(device.scale, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra) ==
          CUDA_SUCCESS);
  CHECK(Device::download(out, 1) == std::vector<float>{15});
  ++bytes;
  CHECK(cuLaunchKernel(device.scale, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra) ==
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST_CASE("fakecuda: kernels and functions launch alike and are asked each by their own queries") {
  Device device;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  REQUIRE(cuLibraryLoadData(&library, &kImage, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  REQUIRE(cuLibraryGetKernel(&kernel, library, "scale") == CUDA_SUCCESS);
  REQUIRE(cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS);
  size_t offset = 0;
  size_t bytes = 0;
  CHECK(cuKernelGetParamInfo(kernel, 3, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 24);
  CHECK(bytes == 8);
  CHECK(cuFuncGetParamInfo(function, 2, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 16);
  CHECK(cuFuncGetParamInfo(function, 4, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), 0, &offset, &bytes) ==
        CUDA_ERROR_INVALID_HANDLE);
  device.scale = reinterpret_cast<CUfunction>(kernel);
  const CUdeviceptr data = device.upload({1});
  CHECK(device.launch(data, data, 2, 1) == CUDA_SUCCESS);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
}

TEST_CASE("fakecuda: captured work runs when the graph is launched, as often as it is") {
  Device device;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  const CUdeviceptr data = device.upload({1});
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  REQUIRE(device.launch(data, data, 2, 1, stream) == CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CHECK(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(Device::download(data, 1) == std::vector<float>{1});
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(Device::download(data, 1) == std::vector<float>{4});
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("fakecuda: an unsafe call during a capture fails and invalidates it") {
  Device device;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  std::thread relaxed([&] {
    cuCtxSetCurrent(device.context);
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuThreadExchangeStreamCaptureMode(&mode);
    CHECK(cuMemAlloc(&address, 16) == CUDA_SUCCESS);
  });
  relaxed.join();
  CHECK(cuMemAlloc(&address, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuMemAlloc(&address, 16) == CUDA_SUCCESS);
}

TEST_CASE("fakecuda: the legacy stream must not be used while a blocking stream captures") {
  Device device;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  const CUdeviceptr data = device.upload({1});
  REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CHECK(cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(device.launch(data, data, 2, 1) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("fakecuda: virtual memory is usable where it is mapped") {
  Device device;
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  constexpr size_t kGranule = 2 << 20;
  REQUIRE(cuMemAddressReserve(&base, 4 * kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemCreate(&handle, kGranule, nullptr, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(base, kGranule, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemsetD32(base, 7, kGranule / 4) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);  // unmapping waits for nothing
  CHECK(cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  CHECK(cuMemAddressFree(base, 4 * kGranule) == CUDA_SUCCESS);
}

TEST_CASE("fakecuda: looking functions up gives the fake's own, in the variant asked for") {
  void* function = nullptr;
  CHECK(cuGetProcAddress("cuMemAlloc", &function, 12000, 0, nullptr) == CUDA_SUCCESS);
  CHECK(function == reinterpret_cast<void*>(&cuMemAlloc));
  CHECK(cuGetProcAddress("cuLaunchKernel", &function, 12000,
                         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr) == CUDA_SUCCESS);
  CHECK(function != reinterpret_cast<void*>(&cuLaunchKernel));
  CUdriverProcAddressQueryResult status{};
  CHECK(cuGetProcAddress("cuNoSuchCall", &function, 12000, 0, &status) == CUDA_SUCCESS);
  CHECK(function == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(cuGetProcAddress("cuLaunchKernel", &function, 3020, 0, &status) == CUDA_SUCCESS);
  CHECK(function == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST_CASE("fakecuda: convtrace's own fatbin has its kernel, other real images have none") {
  Device device;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const unsigned char fatbin[16] = {0x50, 0xed, 0x55, 0xba};
  REQUIRE(cuModuleLoadData(&module, fatbin) == CUDA_SUCCESS);
  CHECK(cuModuleGetFunction(&function, module, "convtrace_stats") == CUDA_SUCCESS);
  CHECK(cuModuleGetFunction(&function, module, "other") == CUDA_ERROR_NOT_FOUND);
  CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(cuModuleLoadData(&module, "\177ELF-----------") == CUDA_ERROR_INVALID_IMAGE);
}

struct Heard {
  std::vector<std::string> calls;
  CUdeviceptr allocated = 0;
};

void hear(void* userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  auto& heard = *static_cast<Heard*>(userdata);
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  const bool exit = call.callbackSite == CUPTI_API_EXIT;
  heard.calls.push_back(std::string(call.functionName) + (exit ? ":exit" : ":enter"));
  if (exit && cbid == CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2)
    heard.allocated = *static_cast<const cuMemAlloc_v2_params*>(call.functionParams)->dptr;
}

TEST_CASE("fakecupti: enabled callbacks arrive at both ends with the real structures") {
  Device device;
  Heard heard;
  CUpti_SubscriberHandle subscriber = nullptr;
  REQUIRE(cuptiSubscribe(&subscriber, hear, &heard) == CUPTI_SUCCESS);
  REQUIRE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                              CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2) == CUPTI_SUCCESS);
  CUdeviceptr address = 0;
  REQUIRE(cuMemAlloc(&address, 64) == CUDA_SUCCESS);
  REQUIRE(cuMemFree(address) == CUDA_SUCCESS);  // not enabled
  CHECK(heard.calls == std::vector<std::string>{"cuMemAlloc_v2:enter", "cuMemAlloc_v2:exit"});
  CHECK(heard.allocated == address);

  CUpti_SubscriberHandle second = nullptr;
  CHECK(cuptiSubscribe(&second, hear, &heard) == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  REQUIRE(cuptiUnsubscribe(subscriber) == CUPTI_SUCCESS);
  REQUIRE(cuMemAlloc(&address, 64) == CUDA_SUCCESS);
  CHECK(heard.calls.size() == 2);
}

TEST_CASE("fakecupti: another tool can hold the subscription") {
  setenv("FAKECUDA_CUPTI_HOLDER", "CUPTI for Nsight", 1);
  char name[64] = {};
  CUpti_SubscriberParams params{CUpti_SubscriberParams_STRUCT_SIZE, "test", name, sizeof name};
  CUpti_SubscriberHandle subscriber = nullptr;
  CHECK(cuptiSubscribe_v2(&subscriber, hear, nullptr, &params) ==
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CHECK(std::string(name) == "CUPTI for Nsight");
  unsetenv("FAKECUDA_CUPTI_HOLDER");
}

// Last: a lost context is lost for the process.
TEST_CASE("fakecuda: a kernel that reads freed memory loses the context for good") {
  Device device;
  const CUdeviceptr data = device.upload({1});
  REQUIRE(cuMemFree(data) == CUDA_SUCCESS);
  CHECK(device.launch(data, data, 2, 1) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc(&address, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
