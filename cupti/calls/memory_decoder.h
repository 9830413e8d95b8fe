#pragma once
/// @file memory_decoder.h
/// Decodes every driver call that allocates, frees or writes memory into a MemoryChange. The
/// decoders of calls that allocate and free are here, those of calls that write in copy_decoder.h.
///
/// Place:    fed with the parameter structs that CUPTI delivers (generated_cuda_meta.h).
/// Threads:  pure functions.
/// Source:   cuda.h, section "Memory Management"; cuMemMap for virtual memory.

#include <cuda.h>

#include <bit>
#include <cstdint>
#include <optional>

#include "format/model/events.h"

namespace convtrace::cupti {

struct MemoryChange {
  enum class Kind : uint8_t {
    kAlloc,
    kFree,
    kUnmap,  ///< frees every mapping inside [address, address + bytes)
    kCopy,   ///< bytes: from the first to the last one written; 0: the call does not say
    kSet,
    kDiscard,  ///< the contents are undefined from now on
    kCreate,   ///< physical memory, which has no address before it is mapped by its handle
    kRetain,   ///< adds an owner of physical memory
    kRelease,  ///< removes an owner of physical memory
    kAlias,    ///< gives host memory at `source` this second address, on the device
    kNothing,  ///< writes nothing that has an address: a copy into an array, a barrier
    kToHost,   ///< a copy to host memory; it makes no event
    kWait,     ///< later work of the stream waits for a value in memory
  };
  Kind kind = Kind::kAlloc;
  format::MemorySource memory = format::MemorySource::kDriver;
  uint64_t address = 0;
  uint64_t bytes = 0;   ///< kAlloc: 0 means that the call does not say; kFree: 0
  uint64_t source = 0;  ///< kCopy, kAlias: address; kSet: the value
  CUstream stream = nullptr;
  uint64_t handle = 0;  ///< kCreate, kRetain, kRelease, kAlloc that maps: the physical memory
  std::optional<format::Device> device = std::nullopt;  ///< set where the call names it
  /// If an end of the copy is host memory, the call waits for all earlier work of the stream.
  bool may_wait = false;
};

/// @return a pointer that a call was given, as a number.
inline uint64_t address_of(const void* pointer) { return std::bit_cast<uintptr_t>(pointer); }

/// X(how, function): each decoder takes a pointer to the `<function>_params` struct; `how` is a macro
/// of callback_table.cpp, which makes its row. Decoders of kind
/// kAlloc read what the call returned, so they run after a call that succeeded.
#define CONVTRACE_MEMORY_CALLS(X)             \
  X(AT_EXIT, cuMemAlloc_v2)                   \
  X(AT_EXIT, cuMemAllocPitch_v2)              \
  X(AT_EXIT, cuMemAllocManaged)               \
  X(AT_EXIT_ASYNC, cuMemAllocAsync)           \
  X(AT_EXIT_ASYNC, cuMemAllocFromPoolAsync)   \
  X(AT_EXIT, cuMemAllocHost_v2)               \
  X(AT_EXIT, cuMemHostAlloc)                  \
  X(AT_EXIT, cuMemHostRegister_v2)            \
  X(AT_EXIT, cuMemHostGetDevicePointer_v2)    \
  X(AT_EXIT, cuMemMap)                        \
  X(AT_EXIT, cuIpcOpenMemHandle_v2)           \
  X(AT_EXIT, cuExternalMemoryGetMappedBuffer) \
  X(AT_EXIT, cuMemPoolImportPointer)          \
  X(AT_EXIT, cuMemCreate)                     \
  X(AT_EXIT, cuMemImportFromShareableHandle)  \
  X(AT_EXIT, cuMulticastCreate)               \
  X(AT_EXIT, cuMemRetainAllocationHandle)     \
  X(FREE, cuMemRelease)                       \
  X(FREE, cuMemFree_v2)                       \
  X(FREE_ASYNC, cuMemFreeAsync)               \
  X(FREE, cuMemFreeHost)                      \
  X(FREE, cuMemHostUnregister)                \
  X(FREE, cuMemUnmap)                         \
  X(FREE, cuMemAddressFree)                   \
  X(FREE, cuIpcCloseMemHandle)

#define CONVTRACE_X(how, function) MemoryChange decode_##function(const void* params) noexcept;
CONVTRACE_MEMORY_CALLS(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::cupti
