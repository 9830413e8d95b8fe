/// A program for the CUDA driver that launches kernels in all the ways in which pointers reach
/// them.
///
/// usage: gpu_operands
///
/// Prints one JSON object: device, launches (in order: what is special, the addresses given), why
/// there is no launch with a tensor map, if there is none. Exit code 77: no device.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/gpu/programs/device.h"
#include "tests/gpu/programs/image.h"

namespace {

using convtrace::gpu::check;

constexpr unsigned kCount = 1024;

class Said {
 public:
  void launch(const char* what, const std::vector<CUdeviceptr>& addresses) {
    text_ +=
        std::string(text_.empty() ? "" : ", ") + R"({"what": ")" + what + R"(", "addresses": [)";
    for (size_t i = 0; i < addresses.size(); ++i)
      text_ += (i == 0 ? "" : ", ") + std::to_string(addresses[i]);
    text_ += "]}";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

CUdeviceptr allocate() {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, kCount * sizeof(float)), "cuMemAlloc");
  return address;
}

void run(CUfunction function, void** params, void** extra) {
  check(cuLaunchKernel(function, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, params, extra),
        "launch");
}

/// The runtime's handles since CUDA 12: a kernel of a library, passed off as a function.
void launch_kernel_handle(const void* image, Said& said) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  check(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData");
  check(cuLibraryGetKernel(&kernel, library, "gpu_check_mix"), "cuLibraryGetKernel");
  std::vector<CUdeviceptr> buffers = {allocate(), allocate(), allocate(), allocate()};
  float x = 1, y = 2, z = 3;
  unsigned count = kCount;
  void* params[] = {&buffers[0], &buffers[1], &buffers[2], &buffers[3], &x, &y, &z, &count};
  run(reinterpret_cast<CUfunction>(kernel), params, nullptr);
  said.launch("a CUkernel as handle", buffers);
}

struct Pair {
  CUdeviceptr first, second;
};

void launch_structs(CUmodule module, Said& said) {
  CUfunction swap = nullptr;
  check(cuModuleGetFunction(&swap, module, "gpu_check_swap"), "cuModuleGetFunction");
  Pair pair = {allocate(), allocate()};
  unsigned count = kCount;
  void* params[] = {&pair, &count};
  run(swap, params, nullptr);
  said.launch("pointers in a struct", {pair.first, pair.second});

  struct {
    Pair pair;
    unsigned count;
  } buffer = {{allocate(), allocate()}, kCount};
  size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  run(swap, nullptr, extra);
  said.launch("parameters in an extra buffer", {buffer.pair.first, buffer.pair.second});
}

/// @return why it was left out; empty: it was not.
std::string launch_tensor_map(CUmodule module, Said& said) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto encode =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(dlsym(library, "cuTensorMapEncodeTiled"));
  if (encode == nullptr) return "the driver has no cuTensorMapEncodeTiled";
  alignas(128) CUtensorMap map;
  CUdeviceptr tensor = allocate(), out = allocate();
  const cuuint64_t extent[] = {kCount / 4, 4}, stride[] = {kCount / 4 * sizeof(float)};
  const cuuint32_t box[] = {64, 2}, step[] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(tensor), extent,
             stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return "cuTensorMapEncodeTiled says " + std::to_string(result);
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module, "gpu_check_tensor_map"), "cuModuleGetFunction");
  void* params[] = {&map, &out};
  run(function, params, nullptr);
  said.launch("a tensor map", {tensor, out});
  return "";
}

}  // namespace

int main() {
  convtrace::gpu::start_driver();
  const convtrace::gpu::Device device;
  const void* image = convtrace::gpu::kernel_image(device.name);
  CUmodule module = nullptr;
  check(cuModuleLoadData(&module, image), "cuModuleLoadData");

  Said said;
  launch_kernel_handle(image, said);
  launch_structs(module, said);
  const std::string why = launch_tensor_map(module, said);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf("{\"device\": \"%s\", \"launches\": [%s], \"why_no_tensor_map\": \"%s\"}\n",
              device.name, said.text().c_str(), why.c_str());
  return 0;
}
