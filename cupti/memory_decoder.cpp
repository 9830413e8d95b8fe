#include "cupti/memory_decoder.h"

#include <cupti.h>

#include <bit>

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

uint64_t address_of(const void* pointer) { return std::bit_cast<uintptr_t>(pointer); }

MemoryChange alloc(MemorySource memory, uint64_t address, uint64_t bytes,
                   CUstream stream = nullptr) {
  return {Kind::kAlloc, memory, address, bytes, 0, stream};
}

MemoryChange free_of(MemorySource memory, uint64_t address, CUstream stream = nullptr) {
  return {Kind::kFree, memory, address, 0, 0, stream};
}

MemoryChange copy(uint64_t destination, uint64_t source, uint64_t bytes,
                  CUstream stream = nullptr) {
  return {Kind::kCopy, MemorySource::kDriver, destination, bytes, source, stream};
}

MemoryChange set(uint64_t destination, uint64_t value, uint64_t bytes, CUstream stream = nullptr) {
  return {Kind::kSet, MemorySource::kDriver, destination, bytes, value, stream};
}

}  // namespace

#define CONVTRACE_DECODE(function, ...)                             \
  MemoryChange decode_##function(const void* params) noexcept {     \
    const auto& p = *static_cast<const function##_params*>(params); \
    return __VA_ARGS__;                                             \
  }

CONVTRACE_DECODE(cuMemAlloc_v2, alloc(MemorySource::kDriver, *p.dptr, p.bytesize))
CONVTRACE_DECODE(cuMemAllocPitch_v2, alloc(MemorySource::kDriver, *p.dptr, *p.pPitch* p.Height))
CONVTRACE_DECODE(cuMemAllocManaged, alloc(MemorySource::kDriver, *p.dptr, p.bytesize))
CONVTRACE_DECODE(cuMemAllocAsync,
                 alloc(MemorySource::kStreamOrdered, *p.dptr, p.bytesize, p.hStream))
CONVTRACE_DECODE(cuMemAllocFromPoolAsync,
                 alloc(MemorySource::kStreamOrdered, *p.dptr, p.bytesize, p.hStream))
CONVTRACE_DECODE(cuMemAllocHost_v2, alloc(MemorySource::kHost, address_of(*p.pp), p.bytesize))
CONVTRACE_DECODE(cuMemHostAlloc, alloc(MemorySource::kHost, address_of(*p.pp), p.bytesize))
CONVTRACE_DECODE(cuMemHostRegister_v2, alloc(MemorySource::kHost, address_of(p.p), p.bytesize))
CONVTRACE_DECODE(cuMemMap, alloc(MemorySource::kVirtual, p.ptr, p.size))
CONVTRACE_DECODE(cuIpcOpenMemHandle_v2, alloc(MemorySource::kForeign, *p.pdptr, 0))
CONVTRACE_DECODE(cuExternalMemoryGetMappedBuffer,
                 alloc(MemorySource::kForeign, *p.devPtr, p.bufferDesc->size))
CONVTRACE_DECODE(cuMemPoolImportPointer, alloc(MemorySource::kForeign, *p.ptr_out, 0))

CONVTRACE_DECODE(cuMemFree_v2, free_of(MemorySource::kDriver, p.dptr))
CONVTRACE_DECODE(cuMemFreeAsync, free_of(MemorySource::kStreamOrdered, p.dptr, p.hStream))
CONVTRACE_DECODE(cuMemFreeHost, free_of(MemorySource::kHost, address_of(p.p)))
CONVTRACE_DECODE(cuMemHostUnregister, free_of(MemorySource::kHost, address_of(p.p)))
CONVTRACE_DECODE(cuMemUnmap, {Kind::kUnmap, MemorySource::kVirtual, p.ptr, p.size, 0, nullptr})
CONVTRACE_DECODE(cuIpcCloseMemHandle, free_of(MemorySource::kForeign, p.dptr))

CONVTRACE_DECODE(cuMemcpy, copy(p.dst, p.src, p.ByteCount))
CONVTRACE_DECODE(cuMemcpyAsync, copy(p.dst, p.src, p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyHtoD_v2, copy(p.dstDevice, address_of(p.srcHost), p.ByteCount))
CONVTRACE_DECODE(cuMemcpyHtoDAsync_v2,
                 copy(p.dstDevice, address_of(p.srcHost), p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyDtoD_v2, copy(p.dstDevice, p.srcDevice, p.ByteCount))
CONVTRACE_DECODE(cuMemcpyDtoDAsync_v2, copy(p.dstDevice, p.srcDevice, p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyPeerAsync, copy(p.dstDevice, p.srcDevice, p.ByteCount, p.hStream))

CONVTRACE_DECODE(cuMemsetD8_v2, set(p.dstDevice, p.uc, p.N))
CONVTRACE_DECODE(cuMemsetD16_v2, set(p.dstDevice, p.us, p.N * 2))
CONVTRACE_DECODE(cuMemsetD32_v2, set(p.dstDevice, p.ui, p.N * 4))
CONVTRACE_DECODE(cuMemsetD8Async, set(p.dstDevice, p.uc, p.N, p.hStream))
CONVTRACE_DECODE(cuMemsetD16Async, set(p.dstDevice, p.us, p.N * 2, p.hStream))
CONVTRACE_DECODE(cuMemsetD32Async, set(p.dstDevice, p.ui, p.N * 4, p.hStream))

#undef CONVTRACE_DECODE

}  // namespace convtrace::cupti
