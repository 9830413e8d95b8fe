#pragma once
/// @file context_table.h
/// The contexts that convtrace may use, each with its device.
///
/// A context is added when the program has used it: at a launch through the gate, or at a driver
/// call that CUPTI reports with an id of the context. By then its creation is over, which a
/// CONTEXT_CREATED callback does not guarantee, nor the exit of cuCtxSetCurrent.
///
/// Threads:  any, concurrently.

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "format/base/mutex.h"

namespace convtrace::cupti {

class ContextTable {
 public:
  ContextTable() = default;
  ~ContextTable() { forget_answers(); }
  ContextTable(const ContextTable&) = delete;
  ContextTable& operator=(const ContextTable&) = delete;

  /// Called at every launch: a thread that asks for the same context as last time takes no lock.
  [[nodiscard]] std::optional<uint8_t> device_of(CUcontext context) const {
    thread_local Answer last;
    const uint64_t epoch = epoch_.load(std::memory_order_acquire);
    if (last.table == this && last.context == context && last.epoch == epoch) return last.device;
    const SharedLock lock(mutex_);
    const auto it = contexts_.find(context);
    if (it == contexts_.end()) return std::nullopt;
    last = {this, context, epoch, it->second.device};
    return it->second.device;
  }

  /// @return the context of a device; null if there is none, or more than one.
  [[nodiscard]] CUcontext only_context_of(uint8_t device) const {
    const SharedLock lock(mutex_);
    CUcontext found = nullptr;
    for (const auto& [context, known] : contexts_) {
      if (known.device != device) continue;
      if (found != nullptr) return nullptr;
      found = context;
    }
    return found;
  }

  /// @param id  unique among all contexts of the process; 0: not known.
  /// @return whether it was new.
  bool add(CUcontext context, uint8_t device, uint64_t id = 0) {
    const Lock lock(mutex_);
    return contexts_.emplace(context, Entry{device, id}).second;
  }

  /// @return whether the handle belongs to a known context with another id. Stores `id` for a context
  /// whose id was not known.
  [[nodiscard]] bool is_another(CUcontext context, uint64_t id) {
    const Lock lock(mutex_);
    const auto it = contexts_.find(context);
    if (it == contexts_.end()) return false;
    if (it->second.id == 0) it->second.id = id;
    return it->second.id != id;
  }

  void remove(CUcontext context) {
    const Lock lock(mutex_);
    contexts_.erase(context);
    forget_answers();
  }

  /// @return ordinals of the devices that have a context now.
  [[nodiscard]] std::set<uint8_t> devices() const {
    const SharedLock lock(mutex_);
    std::set<uint8_t> ordinals;
    for (const auto& [context, known] : contexts_) ordinals.insert(known.device);
    return ordinals;
  }

 private:
  struct Entry {
    uint8_t device = 0;
    uint64_t id = 0;
  };
  struct Answer {
    const ContextTable* table = nullptr;
    CUcontext context = nullptr;
    uint64_t epoch = 0;
    uint8_t device = 0;
  };
  static void forget_answers() { epoch_.fetch_add(1, std::memory_order_release); }

  /// Counts changes in all tables, since a new table may have the address of an old one.
  static inline std::atomic<uint64_t> epoch_{0};

  mutable SharedMutex mutex_;
  std::map<CUcontext, Entry> contexts_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
