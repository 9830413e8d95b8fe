/// Launches.

#include <algorithm>
#include <cstring>

#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace {

thread_local uint64_t first_launches = 0;

struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
};

/// A kernel's first launch may load it, and get local memory for it: both wait for the context.
/// Source: G "Lazy Loading", "Concurrent Execution"; cuCtxSetLimit, CU_LIMIT_STACK_SIZE.
void begin_use() {
  ++first_launches;
  if (scheduler().is_seeded() && !is_capturing_any()) scheduler().wait_all(current_context());
}

/// An error of a kernel is told by a later call. Source: G "Error Checking".
CUresult lose_context_later(CUstream stream) {
  Work work;
  work.other = [] { driver().sticky.store(CUDA_ERROR_ILLEGAL_ADDRESS); };
  return enqueue(stream, std::move(work));
}

CUresult launch(CUfunction function, const Shape& shape, CUstream stream, bool per_thread,
                void** params, void** extra) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < 3; ++i)
    if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  CUstream resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // cuLaunchKernel: function and stream are those of the current context.
  if (function->context != nullptr && function->context != resolved->context)
    return CUDA_ERROR_INVALID_HANDLE;
  if (driver().launches.fetch_add(1) + 1 == knob("FAKECUDA_STICKY_AT_LAUNCH", 0)) {
    if (scheduler().is_seeded()) return lose_context_later(resolved);
    driver().sticky.store(CUDA_ERROR_ILLEGAL_ADDRESS);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (!function->launched.exchange(true)) begin_use();
  auto kernel = std::make_shared<KernelWork>();
  kernel->function = function;
  std::copy_n(shape.grid, 3, kernel->grid);
  std::copy_n(shape.block, 3, kernel->block);
  kernel->shared_bytes = shape.shared_bytes;
  const CUresult copied = copy_arguments(*kernel, params, extra);
  if (copied != CUDA_SUCCESS) return copied;
  return enqueue(resolved, {.kernel = kernel, .child = nullptr, .other = nullptr});
}

/// Attributes that are hints or allow what need not be done are honoured by doing nothing; a grid
/// that is no multiple of its clusters, and what is not known, is refused. Source:
/// CUlaunchAttributeID.
bool can_honour(const CUlaunchConfig& config) {
  return std::all_of(config.attrs, config.attrs + config.numAttrs, [&](const auto& attribute) {
    const auto& cluster = attribute.value.clusterDim;
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return cluster.x != 0 && cluster.y != 0 && cluster.z != 0 &&
               config.gridDimX % cluster.x == 0 && config.gridDimY % cluster.y == 0 &&
               config.gridDimZ % cluster.z == 0;
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: return true;
      default: return false;
    }
  });
}

const char* name_of(CUfunction function) {
  return function == nullptr ? nullptr : function->kernel->name;
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
    // Seen on an H100 with driver 580: the padding of a struct behind the last parameter is too much.
    if (bytes > work.buffer.size()) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    memcpy(work.buffer.data(), data, work.buffer.size());
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i <= last; ++i) work.values.push_back(&work.buffer[function.offsets[i]]);
  return CUDA_SUCCESS;
}

void KernelWork::run(uint64_t& unfinished) const {
  fakecuda_launch view{};
  std::copy_n(grid, 3, view.grid);
  std::copy_n(block, 3, view.block);
  view.shared_bytes = shared_bytes;
  view.param_count = function->kernel->param_count;
  view.params = const_cast<const void* const*>(values.data());
  view.device = &checked_translate;
  view.unfinished = &unfinished;
  function->kernel->run(&view);
}

}  // namespace fakecuda

FAKECUDA_EXPORT uint64_t fakecuda::fakecuda_first_launches() { return first_launches; }
FAKECUDA_EXPORT uint64_t fakecuda::fakecuda_launches() { return driver().launches.load(); }

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
          if (!can_honour(*config)) return CUDA_ERROR_INVALID_VALUE;                           \
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
