/// Virtual memory: address space, physical memory, and the one mapped into the other; memory of
/// other processes.

#include <map>

#include "tests/fakecuda/memory_calls.h"

using namespace fakecuda;

namespace {

/// Physical memory has handles and owners, and no bytes of its own: those come with the mapping.
struct Physical {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, int> owners;
  CUmemGenericAllocationHandle last = 0;

  CUresult make(CUmemGenericAllocationHandle* handle) {
    const std::lock_guard lock(mutex);
    owners[*handle = ++last] = 1;
    return entry_status();
  }
  CUresult change(CUmemGenericAllocationHandle handle, int by) {
    const std::lock_guard lock(mutex);
    const auto it = owners.find(handle);
    if (it == owners.end()) return CUDA_ERROR_INVALID_VALUE;
    if ((it->second += by) == 0) owners.erase(it);
    return CUDA_SUCCESS;
  }
};
Physical& physical() {
  static auto* const all = new Physical;
  return *all;
}

}  // namespace

FAKECUDA_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment,
                                             CUdeviceptr wanted, unsigned long long flags) {
  const cuMemAddressReserve_params params{address, bytes, alignment, wanted, flags};
  return FAKECUDA_AROUND(cuMemAddressReserve, params, [&] {
    *address = driver().memory.reserve(bytes);
    return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : entry_status();
  });
}

FAKECUDA_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  const cuMemAddressFree_params params{address, bytes};
  return FAKECUDA_AROUND(cuMemAddressFree, params, [&] {
    return driver().memory.unreserve(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

FAKECUDA_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                     const CUmemAllocationProp* prop, unsigned long long flags) {
  const cuMemCreate_params params{handle, bytes, prop, flags};
  return FAKECUDA_AROUND(cuMemCreate, params, [&] { return physical().make(handle); });
}

FAKECUDA_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                        void* os_handle,
                                                        CUmemAllocationHandleType type) {
  const cuMemImportFromShareableHandle_params params{handle, os_handle, type};
  return FAKECUDA_AROUND(cuMemImportFromShareableHandle, params,
                         [&] { return physical().make(handle); });
}

FAKECUDA_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle,
                                           const CUmulticastObjectProp* prop) {
  const cuMulticastCreate_params params{handle, prop};
  return FAKECUDA_AROUND(cuMulticastCreate, params, [&] { return physical().make(handle); });
}

FAKECUDA_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const cuMemRelease_params params{handle};
  return FAKECUDA_AROUND(cuMemRelease, params, [&] { return physical().change(handle, -1); });
}

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

// There is one process: what it opens is memory that nobody else has.

FAKECUDA_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                            unsigned flags) {
  const cuIpcOpenMemHandle_v2_params params{address, handle, flags};
  return FAKECUDA_AROUND(cuIpcOpenMemHandle_v2, params, [&] { return allocate(address, 4096); });
}

FAKECUDA_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  const cuIpcCloseMemHandle_params params{address};
  return FAKECUDA_AROUND(cuIpcCloseMemHandle, params, [&] {
    return driver().memory.free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

FAKECUDA_EXPORT CUresult cuImportExternalMemory(CUexternalMemory* memory,
                                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*) {
  *memory = reinterpret_cast<CUexternalMemory>(new int);
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuExternalMemoryGetMappedBuffer(
    CUdeviceptr* address, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  const cuExternalMemoryGetMappedBuffer_params params{address, memory, buffer};
  return FAKECUDA_AROUND(cuExternalMemoryGetMappedBuffer, params,
                         [&] { return allocate(address, buffer->size); });
}

FAKECUDA_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  delete reinterpret_cast<int*>(memory);
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool,
                                                CUmemPoolPtrExportData* data) {
  const cuMemPoolImportPointer_params params{address, pool, data};
  return FAKECUDA_AROUND(cuMemPoolImportPointer, params, [&] { return allocate(address, 4096); });
}
