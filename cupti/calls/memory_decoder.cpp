#include "cupti/calls/memory_decoder.h"

#include <cupti.h>

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

MemoryChange alloc(MemorySource memory, uint64_t address, uint64_t bytes,
                   CUstream stream = nullptr) {
  return {Kind::kAlloc, memory, address, bytes, 0, stream};
}

MemoryChange free_of(MemorySource memory, uint64_t address, CUstream stream = nullptr) {
  return {Kind::kFree, memory, address, 0, 0, stream};
}

MemoryChange map(uint64_t address, uint64_t bytes, uint64_t handle) {
  return {Kind::kAlloc, MemorySource::kVirtual, address, bytes, 0, nullptr, handle};
}

/// Host memory can be mapped for the GPU, too.
format::Device device_of(const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return {};
  return {format::Device::Type::kCuda, static_cast<uint8_t>(location.id)};
}

MemoryChange physical(Kind kind, MemorySource memory, uint64_t handle,
                      std::optional<format::Device> device = std::nullopt) {
  return {kind, memory, 0, 0, 0, nullptr, handle, device};
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
CONVTRACE_DECODE(cuMemHostGetDevicePointer_v2,
                 {Kind::kAlias, MemorySource::kHost, *p.pdptr, 0, address_of(p.p)})
CONVTRACE_DECODE(cuMemMap, map(p.ptr, p.size, p.handle))
CONVTRACE_DECODE(cuIpcOpenMemHandle_v2, alloc(MemorySource::kForeign, *p.pdptr, 0))
CONVTRACE_DECODE(cuExternalMemoryGetMappedBuffer,
                 alloc(MemorySource::kForeign, *p.devPtr, p.bufferDesc->size))
CONVTRACE_DECODE(cuMemPoolImportPointer, alloc(MemorySource::kForeign, *p.ptr_out, 0))

CONVTRACE_DECODE(cuMemCreate, physical(Kind::kCreate, MemorySource::kVirtual, *p.handle,
                                       device_of(p.prop->location)))
CONVTRACE_DECODE(cuMemImportFromShareableHandle,
                 physical(Kind::kCreate, MemorySource::kForeign, *p.handle))
CONVTRACE_DECODE(cuMulticastCreate, physical(Kind::kCreate, MemorySource::kMulticast, *p.mcHandle))
CONVTRACE_DECODE(cuMemRetainAllocationHandle,
                 physical(Kind::kRetain, MemorySource::kVirtual, *p.handle))
CONVTRACE_DECODE(cuMemRelease, physical(Kind::kRelease, MemorySource::kVirtual, p.handle))

CONVTRACE_DECODE(cuMemFree_v2, free_of(MemorySource::kDriver, p.dptr))
CONVTRACE_DECODE(cuMemFreeAsync, free_of(MemorySource::kStreamOrdered, p.dptr, p.hStream))
CONVTRACE_DECODE(cuMemFreeHost, free_of(MemorySource::kHost, address_of(p.p)))
CONVTRACE_DECODE(cuMemHostUnregister, free_of(MemorySource::kHost, address_of(p.p)))
CONVTRACE_DECODE(cuMemUnmap, {Kind::kUnmap, MemorySource::kVirtual, p.ptr, p.size})
// No mapping can be left in the range, so this also frees those whose unmap was not seen.
CONVTRACE_DECODE(cuMemAddressFree, {Kind::kUnmap, MemorySource::kVirtual, p.ptr, p.size})
CONVTRACE_DECODE(cuIpcCloseMemHandle, free_of(MemorySource::kForeign, p.dptr))

#undef CONVTRACE_DECODE

}  // namespace convtrace::cupti
