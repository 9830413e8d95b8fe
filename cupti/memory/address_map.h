#pragma once
/// @file address_map.h
/// Which life of which memory an address belongs to.
///
/// An allocation generation is one life of an address range: a driver allocation, a stream-ordered
/// pool allocation, or a framework's block inside a driver segment. A lookup finds the innermost
/// live range, else the youngest freed one.
///
/// Place:    fed by cupti/ (driver calls) and interposer/core (framework reports); read on every
///           launch.
/// Threads:  any, concurrently. find() takes no lock and never waits (address_table.h).
/// Errors:   never fails. Of freed ranges the last 65536 are remembered; a range that no allocator
///           could give (address_table.h) gets its generation but is not found.
/// Source:   docs/adr/0007-generations-without-locks.md.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "cupti/memory/address_table.h"
#include "format/base/mutex.h"
#include "format/model/events.h"

namespace convtrace::cupti {

struct MemoryRange {
  uint64_t base = 0;
  uint64_t bytes = 0;       ///< 0: size unknown (imported memory), only the base is found
  uint64_t generation = 0;  ///< 1, 2, ... in order of allocation; unique in a process
  format::MemorySource source = format::MemorySource::kDriver;
  format::Device device;
  uint64_t stream = 0;
  bool freed = false;
  /// Of an address found in live driver memory: the framework's block that was freed there last,
  /// so a dangling pointer into a caching allocator's segment. 0: none.
  uint64_t freed_block = 0;
};

class AddressMap {
 public:
  /// Starts a generation. Live ranges that it overlaps are ended first, the framework's by its
  /// own, the driver's by the driver's: their free was not seen.
  /// @return the range with its new generation.
  MemoryRange allocate(MemoryRange range);

  /// Ends the live range that starts at `base`: the framework's if `source` is it, else the
  /// driver's, of whatever source. Pool memory, imported memory and plain memory share their calls.
  /// @return the range, freed; nullopt when there is none (allocated before we looked).
  std::optional<MemoryRange> release(uint64_t base, format::MemorySource source);

  /// @return the live range that holds `address`, the framework's before the driver's; else the one
  /// freed there last; else nullopt.
  [[nodiscard]] std::optional<MemoryRange> find(uint64_t address) const;

  /// @return the same range's life, in half the time.
  [[nodiscard]] MemoryAllocation allocation_at(uint64_t address) const noexcept {
    return table_.may_hold(address) ? table_.allocation_at(address) : MemoryAllocation{};
  }

  /// @return the youngest generation there is.
  [[nodiscard]] uint64_t last_generation() {
    const Lock lock(writing_);
    return last_generation_;
  }
  [[nodiscard]] uint64_t live_count() const { return live_.load(std::memory_order_relaxed); }

  /// Memory that the map takes.
  [[nodiscard]] uint64_t bytes() const {
    const Lock lock(writing_);
    return table_.bytes() + freed_.capacity() * sizeof(Freed);
  }

 private:
  /// A free, remembered until kMaxFreed later ones.
  struct Freed {
    uint32_t record = 0;
    uint32_t generation = 0;  ///< its lower half tells a recycled record
  };

  /// @param[out] range  that has ended.
  void end(uint32_t record, Layer layer, MemoryRange& range) CONVTRACE_REQUIRES(writing_);
  void end_overlapped(const RangeRecord& range, Layer layer) CONVTRACE_REQUIRES(writing_);
  void remember(const Freed& freed) CONVTRACE_REQUIRES(writing_);

  mutable Mutex writing_;
  AddressTable table_;  ///< written by who holds the mutex, read by any
  std::vector<Freed> freed_ CONVTRACE_GUARDED_BY(writing_);  ///< a ring once it is full
  size_t oldest_freed_ CONVTRACE_GUARDED_BY(writing_) = 0;
  uint64_t last_generation_ CONVTRACE_GUARDED_BY(writing_) = 0;
  std::atomic<uint64_t> live_{0};
};

}  // namespace convtrace::cupti
