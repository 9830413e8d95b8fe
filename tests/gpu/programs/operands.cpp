/// A program for the CUDA driver that launches kernels in all the ways in which pointers reach
/// them.
///
/// usage: gpu_operands
///
/// Prints one JSON object: device, launches (in order: what is special, the addresses given), why
/// there is no launch with a tensor map, if there is none; what cuFuncGetParamInfo and
/// cuFuncGetName say of a kernel of a library that is passed off as a function (a CUresult), and
/// whether a tensor map begins with the tensor's address. Exit code 77: no device.

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

/// What no document says of drivers.
struct Facts {
  int param_info_of_cast_kernel = -1;  ///< -1: there is no such function
  int name_of_cast_kernel = -1;
  bool map_begins_with_address = false;
};

template <typename Function>
Function in_driver(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

/// The runtime's handles since CUDA 12: a kernel of a library, passed off as a function.
void launch_kernel_handle(const void* image, Said& said, Facts& facts) {
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

  const auto function = reinterpret_cast<CUfunction>(kernel);
  if (const auto info = in_driver<decltype(&cuFuncGetParamInfo)>("cuFuncGetParamInfo")) {
    size_t offset = 0, size = 0;
    facts.param_info_of_cast_kernel = info(function, 0, &offset, &size);
  }
  if (const auto get_name = in_driver<decltype(&cuFuncGetName)>("cuFuncGetName")) {
    const char* name = nullptr;
    facts.name_of_cast_kernel = get_name(&name, function);
  }
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
  size_t bytes = offsetof(decltype(buffer), count) + sizeof buffer.count;  // without its padding
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  run(swap, nullptr, extra);
  said.launch("parameters in an extra buffer", {buffer.pair.first, buffer.pair.second});
}

/// @return why it was left out; empty: it was not.
std::string launch_tensor_map(CUmodule module, Said& said, Facts& facts) {
  const auto encode = in_driver<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
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
  facts.map_begins_with_address = std::memcmp(&map, &tensor, sizeof tensor) == 0;
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
  Facts facts;
  launch_kernel_handle(image, said, facts);
  launch_structs(module, said);
  const std::string why = launch_tensor_map(module, said, facts);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf(
      "{\"device\": \"%s\", \"launches\": [%s], \"why_no_tensor_map\": \"%s\", "
      "\"param_info_of_cast_kernel\": %d, \"name_of_cast_kernel\": %d, "
      "\"map_begins_with_address\": %s}\n",
      device.name, said.text().c_str(), why.c_str(), facts.param_info_of_cast_kernel,
      facts.name_of_cast_kernel, facts.map_begins_with_address ? "true" : "false");
  return 0;
}
