/// Allocation and copies. Work on a stream is done when the call returns.

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace {

CUresult unsafe_entry() {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  return forbid_during_capture();
}

CUresult allocate(CUdeviceptr* address, size_t bytes) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *address = driver().memory.allocate(bytes);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

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

/// @return a host pointer for either side of a copy: an address that is no device memory is the
/// host's.
char* either(CUdeviceptr address, size_t bytes) {
  void* device = driver().memory.translate(address, bytes);
  return static_cast<char*>(device == nullptr ? reinterpret_cast<void*>(address) : device);
}

CUresult on_stream(CUstream stream, bool per_thread, std::function<void()> work) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  CUstream resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(resolved, {.kernel = nullptr, .child = nullptr, .other = std::move(work)});
}

/// Device addresses are checked when the work runs, as on a GPU.
std::function<void()> copy_work(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device,
                                size_t bytes) {
  return [=] {
    void* destination =
        to_device ? checked_translate(to, bytes) : static_cast<void*>(either(to, bytes));
    const void* source =
        from_device ? checked_translate(from, bytes) : static_cast<void*>(either(from, bytes));
    if (destination != nullptr && source != nullptr) memmove(destination, source, bytes);
  };
}

template <typename Element>
std::function<void()> set_work(CUdeviceptr to, Element value, size_t count) {
  return [=] {
    auto* destination = static_cast<Element*>(checked_translate(to, count * sizeof(Element)));
    for (size_t i = 0; destination != nullptr && i < count; ++i) destination[i] = value;
  };
}

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

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
    if (driver().memory.remove_shared(reinterpret_cast<void*>(address))) return CUDA_SUCCESS;
    return release(address);
  });
}

namespace {

CUresult alloc_async(CUdeviceptr* address, size_t bytes, CUstream stream, bool per_thread) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  if (resolve(stream, per_thread) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return allocate(address, bytes);
}

CUresult free_async(CUdeviceptr address, CUstream stream, bool per_thread) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  if (resolve(stream, per_thread) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return release(address);
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

FAKECUDA_EXPORT CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  const cuMemHostAlloc_params params{pointer, bytes, flags};
  return FAKECUDA_AROUND(cuMemHostAlloc, params, [&] {
    const CUresult status = unsafe_entry();
    return status == CUDA_SUCCESS ? allocate_shared(pointer, bytes) : status;
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

FAKECUDA_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* pointer, unsigned) {
  *address = number(pointer);
  return driver().memory.translate(*address, 1) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = size_t{16} << 30;
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t,
                                             CUdeviceptr, unsigned long long) {
  *address = driver().memory.reserve(bytes);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : entry_status();
}

FAKECUDA_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t) {
  return driver().memory.unreserve(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKECUDA_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                     const CUmemAllocationProp*, unsigned long long) {
  *handle = bytes;
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle) { return entry_status(); }

FAKECUDA_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const cuMemMap_params params{address, bytes, offset, handle, flags};
  return FAKECUDA_AROUND(cuMemMap, params, [&] {
    return driver().memory.map(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

FAKECUDA_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const cuMemUnmap_params params{address, bytes};
  return FAKECUDA_AROUND(cuMemUnmap, params, [&] {
    return driver().memory.unmap(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

FAKECUDA_EXPORT CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return entry_status();
}

/// X(function, its parameter list, its argument list, the stream, the work)
#define FAKECUDA_STREAM_CALL(function, per_thread, parameters, arguments, stream, work)            \
  FAKECUDA_EXPORT CUresult function parameters {                                                   \
    const function##_params params arguments;                                                      \
    return FAKECUDA_AROUND(function, params, [&] { return on_stream(stream, per_thread, work); }); \
  }

#define FAKECUDA_LIST(...) \
  { __VA_ARGS__ }

FAKECUDA_STREAM_CALL(cuMemcpy, false, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
                     FAKECUDA_LIST(to, from, bytes), nullptr,
                     copy_work(to, false, from, false, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyAsync, false,
                     (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                     FAKECUDA_LIST(to, from, bytes, stream), stream,
                     copy_work(to, false, from, false, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyHtoD_v2, false, (CUdeviceptr to, const void* from, size_t bytes),
                     FAKECUDA_LIST(to, from, bytes), nullptr,
                     copy_work(to, true, number(from), false, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyHtoDAsync_v2, false,
                     (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
                     FAKECUDA_LIST(to, from, bytes, stream), stream,
                     copy_work(to, true, number(from), false, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyDtoH_v2, false, (void* to, CUdeviceptr from, size_t bytes),
                     FAKECUDA_LIST(to, from, bytes), nullptr,
                     copy_work(number(to), false, from, true, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyDtoHAsync_v2, false,
                     (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
                     FAKECUDA_LIST(to, from, bytes, stream), stream,
                     copy_work(number(to), false, from, true, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyDtoD_v2, false, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
                     FAKECUDA_LIST(to, from, bytes), nullptr,
                     copy_work(to, true, from, true, bytes))
FAKECUDA_STREAM_CALL(cuMemcpyDtoDAsync_v2, false,
                     (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                     FAKECUDA_LIST(to, from, bytes, stream), stream,
                     copy_work(to, true, from, true, bytes))
FAKECUDA_STREAM_CALL(cuMemsetD8_v2, false, (CUdeviceptr to, unsigned char value, size_t count),
                     FAKECUDA_LIST(to, value, count), nullptr, set_work(to, value, count))
FAKECUDA_STREAM_CALL(cuMemsetD16_v2, false, (CUdeviceptr to, unsigned short value, size_t count),
                     FAKECUDA_LIST(to, value, count), nullptr, set_work(to, value, count))
FAKECUDA_STREAM_CALL(cuMemsetD32_v2, false, (CUdeviceptr to, unsigned value, size_t count),
                     FAKECUDA_LIST(to, value, count), nullptr, set_work(to, value, count))
FAKECUDA_STREAM_CALL(cuMemsetD8Async, false,
                     (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
                     FAKECUDA_LIST(to, value, count, stream), stream, set_work(to, value, count))
FAKECUDA_STREAM_CALL(cuMemsetD16Async, false,
                     (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
                     FAKECUDA_LIST(to, value, count, stream), stream, set_work(to, value, count))
FAKECUDA_STREAM_CALL(cuMemsetD32Async, false,
                     (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
                     FAKECUDA_LIST(to, value, count, stream), stream, set_work(to, value, count))
