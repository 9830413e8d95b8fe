#pragma once
/// @file memory_recorder.h
/// Turns what the driver does to memory into generations and events.
///
/// An allocation counts when its call has succeeded. A free counts when its call begins: another
/// thread may be given the address before this call returns. If the free then fails, the memory
/// gets a new generation: rare, and never a life too long.
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
  /// Where and when a change happens.
  struct At {
    format::Device device;
    uint32_t step = 0;
    bool per_thread = false;
    CUcontext context = nullptr;
  };

  MemoryRecorder(AddressMap& addresses, format::EventSink& sink)
      : addresses_(addresses), sink_(sink) {}

  /// A call begins. @return the generation that it ends (of several the first), to be handed to
  /// leave(); 0 none.
  uint64_t enter(const MemoryChange& change, const At& at);
  /// A call has ended; `change` is decoded only now for calls of kind kAlloc.
  void leave(const MemoryChange& change, const At& at, bool succeeded, uint64_t ended_generation);

  /// A context is being destroyed, and with it what was allocated in it.
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
  /// By base: contexts own what is no pool's and no mapping.
  std::map<uint64_t, CUcontext> owners_ CONVTRACE_GUARDED_BY(mutex_);
  /// By base of the host's memory: where the device has it.
  std::map<uint64_t, uint64_t> aliases_ CONVTRACE_GUARDED_BY(mutex_);
  /// By first generation: what calls under way have unmapped, should they fail.
  std::map<uint64_t, std::vector<MemoryRange>> unmapping_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
