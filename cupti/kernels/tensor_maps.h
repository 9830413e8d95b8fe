#pragma once
/// @file tensor_maps.h
/// Which global address a tensor map describes. A CUtensorMap is opaque: kernels that use TMA take
/// it by value, and the address in it can only be known from the call that made it.
///
/// Place:    told by the CUPTI callbacks of cuTensorMapEncode*; read at launches that have a
///           parameter of its size.
/// Threads:  any; readers take no lock and never wait.
/// Errors:   of many maps the latest 4096 or so are known; one that was made on the device is not.

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

  /// @return the address that the bytes at `map` describe, 0 if they are no map that was learnt.
  [[nodiscard]] uint64_t find(const void* map) const noexcept;

  /// Whether find() can find anything.
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

 private:
  /// A map is known by a hash of its bytes. Changed while its hash is 0.
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
