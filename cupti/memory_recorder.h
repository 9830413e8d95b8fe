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

#include "cupti/address_map.h"
#include "cupti/memory_decoder.h"
#include "format/event_sink.h"

namespace convtrace::cupti {

class MemoryRecorder {
 public:
  /// Where and when a change happens.
  struct At {
    format::Device device;
    uint32_t step = 0;
    bool per_thread = false;
  };

  MemoryRecorder(AddressMap& addresses, format::EventSink& sink)
      : addresses_(addresses), sink_(sink) {}

  /// A call begins. @return the generation that it ends, to be handed to leave(); 0 none.
  uint64_t enter(const MemoryChange& change, const At& at);
  /// A call has ended; `change` is decoded only now for calls of kind kAlloc.
  void leave(const MemoryChange& change, const At& at, bool succeeded, uint64_t ended_generation);

 private:
  void allocated(const MemoryChange& change, const At& at);
  void unmapped(const MemoryChange& change, const At& at);
  void undo_free(const MemoryChange& change, const At& at, uint64_t generation);
  void emit_alloc(const MemoryRange& range, const At& at);
  void emit_free(const MemoryRange& range, const At& at, CUstream stream);

  AddressMap& addresses_;
  format::EventSink& sink_;
};

}  // namespace convtrace::cupti
