#pragma once
/// @file memory_recorder.h
/// Turns the driver's changes of memory into generations and events.
///
/// An allocation is recorded when its call has succeeded. A free is recorded when its call begins,
/// because another thread may get the address before the call returns. If the free then fails, the
/// memory gets a new generation; that is rare, and no generation ever lasts too long.
///
/// Place:    fed by the CUPTI callbacks.
/// Threads:  any, concurrently.

#include <cstdint>
#include <map>
#include <vector>

#include "cupti/calls/memory_decoder.h"
#include "cupti/memory/address_map.h"
#include "cupti/observe/physical_memory.h"
#include "format/base/mutex.h"
#include "format/model/event_sink.h"

namespace convtrace::cupti {

class MemoryRecorder {
 public:
  /// Place and time of a change.
  struct At {
    format::Device device;
    uint32_t step = 0;
    bool per_thread = false;
    CUcontext context = nullptr;
  };

  MemoryRecorder(AddressMap& addresses, format::EventSink& sink)
      : addresses_(addresses), sink_(sink) {}

  /// A call begins. @return the generation that it ends, the first if there are several, for
  /// leave(); 0: none.
  uint64_t enter(const MemoryChange& change, const At& at);
  /// A call has ended. For kAlloc, `change` is decoded only now.
  void leave(const MemoryChange& change, const At& at, bool succeeded, uint64_t ended_generation);

  /// A context is being destroyed, together with all memory that was allocated in it.
  void context_ended(CUcontext context, uint32_t step);

 private:
  void allocated(const MemoryChange& change, const At& at);
  void begin(const MemoryRange& range, const At& at);
  void alias(const MemoryChange& change, const At& at);
  uint64_t free(const MemoryChange& change, const At& at);
  uint64_t unmap(const MemoryChange& change, const At& at);
  void unmap_returned(uint64_t first_generation, const At& at, bool succeeded);
  void undo_free(const MemoryChange& change, const At& at, uint64_t generation);
  void emit_copy(const MemoryChange& change, const At& at);
  void emit_alloc(const MemoryRange& range, const At& at);
  void emit_free(const MemoryRange& range, uint32_t step, uint64_t stream);

  AddressMap& addresses_;
  format::EventSink& sink_;
  PhysicalMemory physical_;

  Mutex mutex_;
  /// By base: the context that owns the memory. Memory of pools and mappings has no owner.
  std::map<uint64_t, CUcontext> owners_ CONVTRACE_GUARDED_BY(mutex_);
  /// By base in host memory: its address on the device.
  std::map<uint64_t, uint64_t> aliases_ CONVTRACE_GUARDED_BY(mutex_);
  /// By first generation: ranges that unfinished calls have unmapped, to restore them if a call
  /// fails.
  std::map<uint64_t, std::vector<MemoryRange>> unmapping_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
