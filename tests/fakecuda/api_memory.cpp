/// Allocations of every kind but the mapped ones.

#include <sys/mman.h>

#include "tests/fakecuda/memory_calls.h"

using namespace fakecuda;

namespace {

CUresult release(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  return driver().memory.free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate_shared(void** pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  driver().memory.add_shared(memory, bytes);
  *pointer = memory;
  return CUDA_SUCCESS;
}

/// @return the bytes that one call may register. A limit of the machine (RLIMIT_MEMLOCK, a
/// sandbox) is an error of cuMemHostRegister: one seed in five has one, above what programs here
/// ask for.
size_t registerable() {
  const bool limited = scheduler().is_seeded() && scheduler().seed() % 5 == 2;
  return knob("FAKECUDA_REGISTERED_MEMORY", limited ? size_t{1} << 20 : SIZE_MAX);
}

}  // namespace

FAKECUDA_EXPORT CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  const cuMemAlloc_v2_params params{address, bytes};
  return FAKECUDA_AROUND(cuMemAlloc_v2, params, [&] {
    const CUresult status = unsafe_entry();
    return status == CUDA_SUCCESS ? allocate(address, bytes) : status;
  });
}

FAKECUDA_EXPORT CUresult cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width,
                                         size_t height, unsigned element) {
  const cuMemAllocPitch_v2_params params{address, pitch, width, height, element};
  return FAKECUDA_AROUND(cuMemAllocPitch_v2, params, [&] {
    if (const CUresult status = unsafe_entry(); status != CUDA_SUCCESS) return status;
    *pitch = (width + 511) / 512 * 512;
    return allocate(address, *pitch * height);
  });
}

FAKECUDA_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const cuMemAllocManaged_params params{address, bytes, flags};
  return FAKECUDA_AROUND(cuMemAllocManaged, params, [&] {
    if (const CUresult status = unsafe_entry(); status != CUDA_SUCCESS) return status;
    void* pointer = nullptr;
    const CUresult result = allocate_shared(&pointer, bytes);
    if (result == CUDA_SUCCESS) *address = number(pointer);
    return result;
  });
}

FAKECUDA_EXPORT CUresult cuMemFree(CUdeviceptr address) {
  const cuMemFree_v2_params params{address};
  return FAKECUDA_AROUND(cuMemFree_v2, params, [&] {
    if (const CUresult status = unsafe_entry(); status != CUDA_SUCCESS) return status;
    // G "Stream Ordered Memory Allocator": the driver takes it that all accesses are over.
    const auto facts = driver().memory.facts(address);
    if (!facts || !facts->ordered) scheduler().wait_all();
    if (driver().memory.remove_shared(reinterpret_cast<void*>(address))) return CUDA_SUCCESS;
    return release(address);
  });
}

namespace {

/// Memory comes and goes in the order of its stream; what a stream captures is not kept from it.
/// Source: cuMemAllocAsync, cuMemFreeAsync.
CUresult in_order(CUstream stream, std::function<void()> change) {
  bool captured = false;
  {
    const std::lock_guard lock(driver().mutex);
    captured = stream->status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  Work work;
  work.other = std::move(change);
  if (!captured) return enqueue(stream, std::move(work));
  work.run_to_end();
  return CUDA_SUCCESS;
}

CUresult alloc_async(CUdeviceptr* address, size_t bytes, CUstream stream, bool per_thread) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  CUstream const resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = allocate(address, bytes, true);
  if (result != CUDA_SUCCESS) return result;
  return in_order(resolved, [at = *address] { driver().memory.arrive(at); });
}

CUresult free_async(CUdeviceptr address, CUstream stream, bool per_thread) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  CUstream const resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto facts = driver().memory.facts(address);
  if (!facts || facts->base != address || facts->shared) return CUDA_ERROR_INVALID_VALUE;
  return in_order(resolved, [=] { (void)release(address); });
}

}  // namespace

FAKECUDA_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  const cuMemAllocAsync_params params{address, bytes, stream};
  return FAKECUDA_AROUND(cuMemAllocAsync, params,
                         [&] { return alloc_async(address, bytes, stream, false); });
}

FAKECUDA_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  const cuMemAllocAsync_ptsz_params params{address, bytes, stream};
  return FAKECUDA_AROUND(cuMemAllocAsync_ptsz, params,
                         [&] { return alloc_async(address, bytes, stream, true); });
}

FAKECUDA_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const cuMemFreeAsync_params params{address, stream};
  return FAKECUDA_AROUND(cuMemFreeAsync, params,
                         [&] { return free_async(address, stream, false); });
}

FAKECUDA_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  const cuMemFreeAsync_ptsz_params params{address, stream};
  return FAKECUDA_AROUND(cuMemFreeAsync_ptsz, params,
                         [&] { return free_async(address, stream, true); });
}

#define FAKECUDA_POOL_ALLOC(function, per_thread)                                          \
  FAKECUDA_EXPORT CUresult function(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, \
                                    CUstream stream) {                                     \
    const function##_params params{address, bytes, pool, stream};                          \
    return FAKECUDA_AROUND(function, params, [&] {                                         \
      if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;                                \
      return alloc_async(address, bytes, stream, per_thread);                              \
    });                                                                                    \
  }
FAKECUDA_POOL_ALLOC(cuMemAllocFromPoolAsync, false)
FAKECUDA_POOL_ALLOC(cuMemAllocFromPoolAsync_ptsz, true)

FAKECUDA_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps*) {
  *pool = reinterpret_cast<CUmemoryPool>(new int);
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  delete reinterpret_cast<int*>(pool);
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  const cuMemHostAlloc_params params{pointer, bytes, flags};
  return FAKECUDA_AROUND(cuMemHostAlloc, params, [&] {
    CUresult status = unsafe_entry();
    if (status == CUDA_SUCCESS) status = allocate_shared(pointer, bytes);
    if (status != CUDA_SUCCESS) return status;
    const std::lock_guard lock(driver().mutex);
    current_context()->host_memory.emplace_back(*pointer, bytes);
    return status;
  });
}

FAKECUDA_EXPORT CUresult cuMemAllocHost(void** pointer, size_t bytes) {
  const cuMemAllocHost_v2_params params{pointer, bytes};
  return FAKECUDA_AROUND(cuMemAllocHost_v2, params, [&] {
    const CUresult status = unsafe_entry();
    return status == CUDA_SUCCESS ? allocate_shared(pointer, bytes) : status;
  });
}

FAKECUDA_EXPORT CUresult cuMemFreeHost(void* pointer) {
  const cuMemFreeHost_params params{pointer};
  return FAKECUDA_AROUND(cuMemFreeHost, params, [&] {
    if (const CUresult status = unsafe_entry(); status != CUDA_SUCCESS) return status;
    return driver().memory.remove_shared(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

FAKECUDA_EXPORT CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  const cuMemHostRegister_v2_params params{pointer, bytes, flags};
  return FAKECUDA_AROUND(cuMemHostRegister_v2, params, [&] {
    if (const CUresult status = unsafe_entry(); status != CUDA_SUCCESS) return status;
    if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > registerable()) return CUDA_ERROR_OUT_OF_MEMORY;
    driver().memory.add_shared(pointer, bytes);
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuMemHostUnregister(void* pointer) {
  const cuMemHostUnregister_params params{pointer};
  return FAKECUDA_AROUND(cuMemHostUnregister, params, [&] {
    if (const CUresult status = unsafe_entry(); status != CUDA_SUCCESS) return status;
    return driver().memory.remove_shared(pointer) ? CUDA_SUCCESS
                                                  : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

FAKECUDA_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* pointer,
                                                   unsigned flags) {
  const cuMemHostGetDevicePointer_v2_params params{address, pointer, flags};
  return FAKECUDA_AROUND(cuMemHostGetDevicePointer_v2, params, [&] {
    *address = number(pointer) + (knob("FAKECUDA_HOST_ALIAS", 0) != 0 ? DeviceMemory::kAlias : 0);
    return driver().memory.translate(*address, 1) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = driver().memory.available();
  *total = driver().memory.limit();
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                                                void** answers, CUdeviceptr address) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  const auto facts = driver().memory.facts(address);
  if (!facts) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(answers[i]) =
            facts->shared ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(answers[i]) = 0; break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<unsigned long long*>(answers[i]) = facts->id;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(answers[i]) = facts->base;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(answers[i]) = 0; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  *handle = {};
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  return driver().memory.facts(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
