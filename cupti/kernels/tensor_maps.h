#pragma once
/// @file tensor_maps.h
/// The address that each tensor map describes. A CUtensorMap is opaque and kernels that use TMA
/// take it by value, so the address is only known from the call that encoded the map.
///
/// Place:    CUPTI callbacks of cuTensorMapEncode* report maps; launches that have a parameter of
///           that size look them up.
/// Threads:  any; readers take no lock and never wait.
/// Errors:   about 4096 maps are kept, the latest; maps that were made on the device are not known.

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "format/base/mutex.h"

namespace convtrace::cupti {

class TensorMaps {
 public:
  static constexpr size_t kBytes = sizeof(CUtensorMap);
  static constexpr size_t kAlignment = 64;  ///< cuda.h of CUDA 12; 128 since 13

  /// @param map kBytes bytes, copied anywhere.
  void learn(const void* map, uint64_t address);

  /// @return the address that the map at `map` describes; 0 if its bytes are not those of a known
  /// map.
  [[nodiscard]] uint64_t find(const void* map) const noexcept;

  /// @return whether any map is known.
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

 private:
  /// Finds a map by a hash of its bytes. The hash is 0 while a slot is being changed.
  struct Slot {
    std::atomic<uint64_t> hash{0};
    std::atomic<uint64_t> address{0};
  };
  static constexpr size_t kSets = 512, kWays = 8;
  using Set = std::array<Slot, kWays>;

  std::array<Set, kSets> sets_;
  std::atomic<bool> any_{false};
  Mutex learning_;
  size_t next_way_ CONVTRACE_GUARDED_BY(learning_) = 0;
};

}  // namespace convtrace::cupti
