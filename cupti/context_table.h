#pragma once
/// @file context_table.h
/// The contexts that may be used, each with its device.
///
/// A context enters when the program has used it: at a launch through the gate, or at the exit of a
/// driver call that CUPTI reports. Its creation is then over for certain, which a
/// CONTEXT_CREATED callback does not promise.
///
/// Threads:  any, concurrently.

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>

namespace convtrace::cupti {

class ContextTable {
 public:
  [[nodiscard]] std::optional<uint8_t> device_of(CUcontext context) const {
    const std::shared_lock lock(mutex_);
    const auto it = devices_.find(context);
    if (it == devices_.end()) return std::nullopt;
    return it->second;
  }

  /// @return the context of a device; null if there is none, or more than one.
  [[nodiscard]] CUcontext only_context_of(uint8_t device) const {
    const std::shared_lock lock(mutex_);
    CUcontext found = nullptr;
    for (const auto& [context, its_device] : devices_) {
      if (its_device != device) continue;
      if (found != nullptr) return nullptr;
      found = context;
    }
    return found;
  }

  /// @return whether it was new.
  bool add(CUcontext context, uint8_t device) {
    const std::unique_lock lock(mutex_);
    return devices_.emplace(context, device).second;
  }

  void remove(CUcontext context) {
    const std::unique_lock lock(mutex_);
    devices_.erase(context);
  }

  /// @return ordinals of the devices that have a context now.
  [[nodiscard]] std::set<uint8_t> devices() const {
    const std::shared_lock lock(mutex_);
    std::set<uint8_t> ordinals;
    for (const auto& [context, device] : devices_) ordinals.insert(device);
    return ordinals;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<CUcontext, uint8_t> devices_;
};

}  // namespace convtrace::cupti
