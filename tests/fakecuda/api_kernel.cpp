/// Modules, libraries and kernels.

#include <algorithm>
#include <cstring>

#include "tests/fakecuda/builtin_kernels.h"
#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace {

std::unique_ptr<CUfunc_st> make_function(const fakecuda_kernel& kernel, bool is_kernel) {
  auto function = std::make_unique<CUfunc_st>();
  if (!is_kernel) function->context = current_context();
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

FAKECUDA_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  // Seen on an H100 with driver 580, by a thread that met the context inside the runtime's call.
  if (current_context() != nullptr && is_unfinished(current_context()) &&
      current_context()->maker != std::this_thread::get_id())
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
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
    scheduler().wait_all();
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
    scheduler().wait_all();
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
