/// Initialisation, devices and contexts.

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace {

constexpr int kDriverVersion = 13000;

int device_count() { return static_cast<int>(knob("FAKECUDA_DEVICES", 1)); }

/// As the real driver: once, inside the first cuInit, whatever comes of it.
void load_injection() {
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == 0) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  using Initialize = int (*)();
  if (const auto start = reinterpret_cast<Initialize>(dlsym(library, "InitializeInjection")))
    start();
}

/// The handle of one that is gone, if the knob says so.
CUcontext take_handle() {
  auto& all = driver().all_contexts;
  const auto gone = std::ranges::find_if(
      all, [](const auto& one) { return !driver().contexts.contains(one.get()); });
  if (gone == all.end() || knob("FAKECUDA_CONTEXTS_COME_AGAIN", 0) == 0)
    return all.emplace_back(new CUctx_st).get();
  return gone->get();
}

CUcontext make_context(int device) {
  static uint32_t last_uid = 0;
  const std::lock_guard lock(driver().mutex);
  CUcontext const context = take_handle();
  context->device = device;
  context->legacy.context = context;
  context->legacy.id = ++CUstream_st::last_id;
  context->per_thread.clear();
  context->uid = ++last_uid;
  driver().contexts.insert(context);
  return context;
}

void destroy_context(CUcontext context) {
  if (const Hook hook = driver().hook.load()) {
    HookCall call;
    call.resource = true;
    call.cbid = CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING;
    call.context = context;
    hook(call);
  }
  scheduler().end(context);
  const std::lock_guard lock(driver().mutex);
  for (const auto& [memory, bytes] : context->host_memory)
    if (driver().memory.remove_shared(memory)) mprotect(memory, bytes, PROT_NONE);
  context->host_memory.clear();
  driver().contexts.erase(context);
  std::erase_if(driver().streams, [=](CUstream stream) { return stream->context == context; });
  std::erase_if(driver().events, [=](CUevent event) { return event->context == context; });
}

/// CUDA is unusable in the child of a process that has used it.
void end_in_child() { driver().initialised.store(false); }

/// As the driver ends itself: a library's destructor may run before another's exit handler.
void deinitialise() {
  if (driver().hook.load() != nullptr) fputs("fakecuda: ends with a CUPTI subscriber\n", stderr);
  driver().sticky.store(CUDA_ERROR_DEINITIALIZED);
}

}  // namespace

FAKECUDA_EXPORT CUresult cuInit(unsigned) {
  static std::once_flag once;
  static pid_t initialised_by = 0;
  if (const uint64_t fails = knob("FAKECUDA_INIT_RESULT", 0); fails != 0)
    return static_cast<CUresult>(fails);
  std::call_once(once, [] {
    load_injection();
    pthread_atfork(nullptr, nullptr, &end_in_child);
    if (knob("FAKECUDA_ENDS_BEFORE_EXIT", 0) != 0) atexit(&deinitialise);
  });
  if (initialised_by == 0) initialised_by = getpid();
  if (initialised_by != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  driver().initialised.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(knob("FAKECUDA_DRIVER_VERSION", kDriverVersion));
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = device_count();
  return entry_status(false);
}

FAKECUDA_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return entry_status(false);
}

FAKECUDA_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(length), "Fake device %d", device);
  return entry_status(false);
}

FAKECUDA_EXPORT CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = size_t{16} << 30;
  return entry_status(false);
}

FAKECUDA_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = static_cast<int>(knob("FAKECUDA_CAPABILITY", 90)) / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = static_cast<int>(knob("FAKECUDA_CAPABILITY", 90)) % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      *value = static_cast<int>(knob("FAKECUDA_F64_RATIO", 2));
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: *value = 1; break;
    default: *value = 0; break;
  }
  return entry_status(false);
}

FAKECUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult status = entry_status(false); status != CUDA_SUCCESS) return status;
  {
    const std::lock_guard lock(driver().mutex);
    const auto it = driver().primary.find(device);
    if (it != driver().primary.end()) {
      *context = it->second;
      return CUDA_SUCCESS;
    }
  }
  *context = make_context(device);
  if (knob("FAKECUDA_RUNTIME_CONTEXT", 0) != 0) {
    (*context)->maker = std::this_thread::get_id();
    (*context)->made = false;
  }
  const std::lock_guard lock(driver().mutex);
  driver().primary[device] = *context;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice) { return entry_status(false); }

FAKECUDA_EXPORT CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams* create_params,
                                     unsigned flags, CUdevice device) {
  if (const CUresult status = entry_status(false); status != CUDA_SUCCESS) return status;
  const cuCtxCreate_v4_params params{context, create_params, flags, device};
  return FAKECUDA_AROUND(cuCtxCreate_v4, params, [&] {
    *context = make_context(device);
    context_stack().push_back(*context);
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuCtxDestroy(CUcontext context) {
  const cuCtxDestroy_v2_params params{context};
  return FAKECUDA_AROUND(cuCtxDestroy_v2, params, [&] {
    if (const CUresult status = entry_status(false); status != CUDA_SUCCESS) return status;
    destroy_context(context);
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  if (context == nullptr) context = current_context();
  const std::lock_guard lock(driver().mutex);
  if (!driver().contexts.contains(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->uid;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  if (const CUresult status = entry_status(false); status != CUDA_SUCCESS) return status;
  const cuCtxSetCurrent_params params{context};
  const CUresult result = FAKECUDA_AROUND(cuCtxSetCurrent, params, [&] {
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
  });
  // The runtime goes on with what it makes; others have the time to meet it.
  if (context != nullptr && is_unfinished(context))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return result;
}

FAKECUDA_EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  if (const CUresult status = entry_status(false); status != CUDA_SUCCESS) return status;
  const cuCtxPushCurrent_v2_params params{context};
  return FAKECUDA_AROUND(cuCtxPushCurrent_v2, params, [&] {
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuCtxPopCurrent(CUcontext* context) {
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_context();
  return driver().initialised.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

FAKECUDA_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuCtxSynchronize() {
  // CUPTI gives no parameters of a call that has none.
  return around(CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, "cuCtxSynchronize", nullptr, [] {
    if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
    const CUresult status = forbid_during_capture();
    return status == CUDA_SUCCESS ? wait_for_context() : status;
  });
}
