#pragma once
/// @file physical_memory.h
/// Facts about physical memory by its handle: owners and device. cuMemMap, which gives the memory
/// an address, names only the handle.
///
/// Threads:  any; locks for itself.
/// Errors:   a handle that was created before tracing began is not found.
/// Source:   cuda.h, "Virtual Memory Management", "Multicast Object Management".

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "cupti/calls/memory_decoder.h"
#include "format/base/mutex.h"

namespace convtrace::cupti {

class PhysicalMemory {
 public:
  struct Facts {
    format::MemorySource source = format::MemorySource::kVirtual;
    std::optional<format::Device> device;
  };

  void create(const MemoryChange& change) {
    const Lock lock(mutex_);
    entries_[change.handle] = {{change.memory, change.device}, 1};
  }

  void retain(uint64_t handle) {
    const Lock lock(mutex_);
    if (const auto it = entries_.find(handle); it != entries_.end()) ++it->second.owners;
  }

  /// Removes an owner. Mappings stay valid, but without an owner no new mapping can be made.
  void release(uint64_t handle) {
    const Lock lock(mutex_);
    const auto it = entries_.find(handle);
    if (it != entries_.end() && --it->second.owners == 0) entries_.erase(it);
  }

  /// @param handle 0: none.
  [[nodiscard]] std::optional<Facts> find(uint64_t handle) const {
    if (handle == 0) return std::nullopt;
    const Lock lock(mutex_);
    const auto it = entries_.find(handle);
    if (it == entries_.end()) return std::nullopt;
    return it->second.facts;
  }

 private:
  struct Entry {
    Facts facts;
    uint32_t owners = 0;
  };

  mutable Mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
