#pragma once
/// @file address_map.h
/// Which life of which memory an address belongs to.
///
/// An allocation generation is one life of an address range: a driver allocation, a stream-ordered
/// pool allocation, or a framework's block inside a driver segment. A lookup finds the innermost
/// live range, else the youngest freed one.
///
/// Place:    fed by cupti/ (driver calls) and interposer/engine (framework reports); read on every
/// launch. Threads:  any, concurrently. Errors:   never fails; memory for freed ranges is bounded
/// (oldest forgotten first). Source:   docs/design.md "Memory generations".

#include <cstdint>
#include <memory>
#include <optional>

#include "format/events.h"

namespace convtrace::cupti {

struct MemoryRange {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;  ///< 1, 2, ... in order of allocation; unique in a process
  format::MemorySource source = format::MemorySource::kDriver;
  format::Device device;
  uint64_t stream = 0;
  format::StackId alloc_stack;
  bool freed = false;
};

class AddressMap {
 public:
  AddressMap();
  ~AddressMap();
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;

  /// Starts a generation. Live ranges of the same source that overlap it are ended first (their
  /// free was not seen).
  /// @return the range with its new generation.
  MemoryRange allocate(MemoryRange range);

  /// Ends the live range of `source` that starts at `base`.
  /// @return the range, freed; nullopt when there is none (allocated before we looked).
  std::optional<MemoryRange> release(uint64_t base, format::MemorySource source);

  /// @return the innermost live range that holds `address`, else the youngest freed one, else
  /// nullopt.
  [[nodiscard]] std::optional<MemoryRange> find(uint64_t address) const;

  [[nodiscard]] uint64_t live_count() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::cupti
