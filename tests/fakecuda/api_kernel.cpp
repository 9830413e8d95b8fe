/// Modules, libraries, kernels and launches.

#include <algorithm>
#include <cstring>

#include "tests/fakecuda/builtin_kernels.h"
#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace {

std::unique_ptr<CUfunc_st> make_function(const fakecuda_kernel& kernel, bool is_kernel) {
  auto function = std::make_unique<CUfunc_st>();
  function->kernel = &kernel;
  function->is_kernel = is_kernel;
  size_t offset = 0;
  for (unsigned i = 0; i < kernel.param_count; ++i) {
    const size_t bytes = kernel.param_bytes[i];
    const size_t alignment = std::clamp<size_t>(bytes & (~bytes + 1), 1, 8);
    offset = (offset + alignment - 1) / alignment * alignment;
    function->offsets.push_back(offset);
    offset += bytes;
  }
  return function;
}

/// The kernels of an image: the program's own, or convtrace's when it is a real fatbin.
std::span<const fakecuda_kernel> kernels_of(const void* image) {
  const auto* own = static_cast<const fakecuda_image*>(image);
  if (memcmp(own->magic, FAKECUDA_MAGIC, sizeof own->magic) == 0)
    return {own->kernels, own->kernel_count};
  return builtin_kernels(image);
}

using Functions = std::map<std::string, std::unique_ptr<CUfunc_st>>;

CUresult load(const void* image, bool is_kernel, Functions& functions) {
  if (const CUresult status = entry_status(!is_kernel); status != CUDA_SUCCESS) return status;
  if (const CUresult status = forbid_during_capture(); status != CUDA_SUCCESS) return status;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto kernels = kernels_of(image);
  if (kernels.empty()) return CUDA_ERROR_INVALID_IMAGE;
  for (const fakecuda_kernel& kernel : kernels)
    functions.emplace(kernel.name, make_function(kernel, is_kernel));
  return CUDA_SUCCESS;
}

CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }
CUkernel as_kernel(CUfunction function) { return reinterpret_cast<CUkernel>(function); }

thread_local uint64_t first_launches = 0;

struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
};

CUresult launch(CUfunction function, const Shape& shape, CUstream stream, bool per_thread,
                void** params, void** extra) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < 3; ++i)
    if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  CUstream resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (driver().launches.fetch_add(1) + 1 == knob("FAKECUDA_STICKY_AT_LAUNCH", 0)) {
    driver().sticky.store(CUDA_ERROR_ILLEGAL_ADDRESS);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (!function->launched.exchange(true)) ++first_launches;
  auto kernel = std::make_shared<KernelWork>();
  kernel->function = function;
  std::copy_n(shape.grid, 3, kernel->grid);
  std::copy_n(shape.block, 3, kernel->block);
  kernel->shared_bytes = shape.shared_bytes;
  const CUresult copied = copy_arguments(*kernel, params, extra);
  if (copied != CUDA_SUCCESS) return copied;
  return enqueue(resolved, {.kernel = kernel, .child = nullptr, .other = nullptr});
}

const char* name_of(CUfunction function) {
  return function == nullptr ? nullptr : function->kernel->name;
}

CUresult param_info(CUfunction function, bool is_kernel, size_t index, size_t* offset,
                    size_t* bytes) {
  if (function == nullptr || function->is_kernel != is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->kernel->param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->offsets[index];
  if (bytes != nullptr) *bytes = function->kernel->param_bytes[index];
  return CUDA_SUCCESS;
}

CUresult get_name(CUfunction function, bool is_kernel, const char** name) {
  if (function == nullptr || function->is_kernel != is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->kernel->name;
  return CUDA_SUCCESS;
}

}  // namespace

namespace fakecuda {

CUresult copy_arguments(KernelWork& work, void** params, void** extra) {
  const CUfunc_st& function = *work.function;
  const fakecuda_kernel& kernel = *function.kernel;
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.param_count == 0) return CUDA_SUCCESS;
  const unsigned last = kernel.param_count - 1;
  work.buffer.resize(function.offsets[last] + kernel.param_bytes[last]);
  if (params != nullptr) {
    for (unsigned i = 0; i <= last; ++i)
      memcpy(&work.buffer[function.offsets[i]], params[i], kernel.param_bytes[i]);
  } else if (extra != nullptr) {
    const void* data = nullptr;
    size_t bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) data = extra[i + 1];
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(extra[i + 1]);
    }
    if (data == nullptr || bytes < work.buffer.size()) return CUDA_ERROR_INVALID_VALUE;
    memcpy(work.buffer.data(), data, work.buffer.size());
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i <= last; ++i) work.values.push_back(&work.buffer[function.offsets[i]]);
  return CUDA_SUCCESS;
}

void KernelWork::run() const {
  fakecuda_launch view{};
  std::copy_n(grid, 3, view.grid);
  std::copy_n(block, 3, view.block);
  view.shared_bytes = shared_bytes;
  view.param_count = function->kernel->param_count;
  view.params = const_cast<const void* const*>(values.data());
  view.device = &checked_translate;
  function->kernel->run(&view);
}

}  // namespace fakecuda

FAKECUDA_EXPORT uint64_t fakecuda::fakecuda_first_launches() { return first_launches; }

FAKECUDA_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  auto loaded = std::make_unique<CUmod_st>();
  const CUresult result = load(image, false, loaded->functions);
  if (result != CUDA_SUCCESS) return result;
  *module = loaded.get();
  const std::lock_guard lock(driver().mutex);
  driver().modules.emplace(*module, std::move(loaded));
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned,
                                            CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

FAKECUDA_EXPORT CUresult cuModuleUnload(CUmodule module) {
  const cuModuleUnload_params params{module};
  return FAKECUDA_AROUND(cuModuleUnload, params, [&] {
    const std::lock_guard lock(driver().mutex);
    return driver().modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

FAKECUDA_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                             const char* name) {
  const cuModuleGetFunction_params params{function, module, name};
  return FAKECUDA_AROUND(cuModuleGetFunction, params, [&] {
    const auto it = module->functions.find(name);
    if (it == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
    *function = it->second.get();
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*,
                                           void**, unsigned, CUlibraryOption*, void**, unsigned) {
  auto loaded = std::make_unique<CUlib_st>();
  const CUresult result = load(image, true, loaded->kernels);
  if (result == CUDA_SUCCESS) *library = loaded.release();
  return result;
}

FAKECUDA_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  const cuLibraryUnload_params params{library};
  return FAKECUDA_AROUND(cuLibraryUnload, params, [&] {
    delete library;
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const cuLibraryGetKernel_params params{kernel, library, name};
  return FAKECUDA_AROUND(cuLibraryGetKernel, params, [&] {
    const auto it = library->kernels.find(name);
    if (it == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
    *kernel = as_kernel(it->second.get());
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const cuKernelGetFunction_params params{function, kernel};
  return FAKECUDA_AROUND(cuKernelGetFunction, params, [&] {
    CUfunction source = as_function(kernel);
    if (source == nullptr || !source->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
    const std::lock_guard lock(driver().mutex);
    if (source->function == nullptr) source->function = make_function(*source->kernel, false);
    *function = source->function.get();
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuFuncGetName(const char** name, CUfunction function) {
  return get_name(function, false, name);
}

FAKECUDA_EXPORT CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return get_name(as_function(kernel), true, name);
}

FAKECUDA_EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                            size_t* bytes) {
  return param_info(function, false, index, offset, bytes);
}

FAKECUDA_EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset,
                                              size_t* bytes) {
  return param_info(as_function(kernel), true, index, offset, bytes);
}

FAKECUDA_EXPORT CUresult cuFuncLoad(CUfunction function) {
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : entry_status();
}

FAKECUDA_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int) {
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : entry_status();
}

FAKECUDA_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction function) {
  *value = 0;
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : entry_status();
}

#define FAKECUDA_LAUNCH_KERNEL(function, per_thread)                                          \
  FAKECUDA_EXPORT CUresult function(CUfunction f, unsigned gx, unsigned gy, unsigned gz,      \
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared,   \
                                    CUstream stream, void** values, void** extra) {           \
    const function##_params params{f, gx, gy, gz, bx, by, bz, shared, stream, values, extra}; \
    return FAKECUDA_AROUND(                                                                   \
        function, params,                                                                     \
        [&] {                                                                                 \
          return launch(f, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, per_thread, values,  \
                        extra);                                                               \
        },                                                                                    \
        name_of(f));                                                                          \
  }

#define FAKECUDA_LAUNCH_KERNEL_EX(function, per_thread)                                        \
  FAKECUDA_EXPORT CUresult function(const CUlaunchConfig* config, CUfunction f, void** values, \
                                    void** extra) {                                            \
    const function##_params params{config, f, values, extra};                                  \
    return FAKECUDA_AROUND(                                                                    \
        function, params,                                                                      \
        [&] {                                                                                  \
          if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;                              \
          const Shape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},            \
                            {config->blockDimX, config->blockDimY, config->blockDimZ},         \
                            config->sharedMemBytes};                                           \
          return launch(f, shape, config->hStream, per_thread, values, extra);                 \
        },                                                                                     \
        name_of(f));                                                                           \
  }

#define FAKECUDA_LAUNCH_COOPERATIVE(function, per_thread)                                    \
  FAKECUDA_EXPORT CUresult function(CUfunction f, unsigned gx, unsigned gy, unsigned gz,     \
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared,  \
                                    CUstream stream, void** values) {                        \
    const function##_params params{f, gx, gy, gz, bx, by, bz, shared, stream, values};       \
    return FAKECUDA_AROUND(                                                                  \
        function, params,                                                                    \
        [&] {                                                                                \
          return launch(f, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, per_thread, values, \
                        nullptr);                                                            \
        },                                                                                   \
        name_of(f));                                                                         \
  }

FAKECUDA_LAUNCH_KERNEL(cuLaunchKernel, false)
FAKECUDA_LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)
FAKECUDA_LAUNCH_KERNEL_EX(cuLaunchKernelEx, false)
FAKECUDA_LAUNCH_KERNEL_EX(cuLaunchKernelEx_ptsz, true)
FAKECUDA_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
FAKECUDA_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

FAKECUDA_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list,
                                                              unsigned count, unsigned flags) {
  const cuLaunchCooperativeKernelMultiDevice_params params{list, count, flags};
  return FAKECUDA_AROUND(cuLaunchCooperativeKernelMultiDevice, params, [&] {
    for (unsigned i = 0; i < count; ++i) {
      const CUDA_LAUNCH_PARAMS& p = list[i];
      const Shape shape{{p.gridDimX, p.gridDimY, p.gridDimZ},
                        {p.blockDimX, p.blockDimY, p.blockDimZ},
                        p.sharedMemBytes};
      const CUresult result = launch(p.function, shape, p.hStream, false, p.kernelParams, nullptr);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  const cuLaunchHostFunc_params params{stream, function, data};
  return FAKECUDA_AROUND(cuLaunchHostFunc, params, [&] {
    CUstream resolved = resolve(stream, false);
    if (function == nullptr || resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return enqueue(resolved,
                   {.kernel = nullptr, .child = nullptr, .other = [=] { function(data); }});
  });
}
