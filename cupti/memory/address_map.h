#pragma once
/// @file address_map.h
/// Finds the allocation generation that an address belongs to.
///
/// An allocation generation is one lifetime of an address range: of a driver allocation, of a
/// stream-ordered pool allocation, or of a framework's block inside a driver segment. A lookup
/// finds the innermost live range, else the range that was freed there last.
///
/// Place:    fed by cupti/ (driver calls) and interposer/core (framework reports); read on every
///           launch.
/// Threads:  any, concurrently. find() takes no lock and never waits (address_table.h).
/// Errors:   never fails. The last 65536 freed ranges are remembered. A range that no allocator
///           could return (address_table.h) gets a generation but is not found.
/// Source:   docs/adr/0007-generations-without-locks.md.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "cupti/memory/address_table.h"
#include "cupti/memory/live_blocks.h"
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
  /// For an address in live driver memory: generation of the framework's block that was freed there
  /// last, so the address may be a dangling pointer into a caching allocator's segment. 0: none.
  uint64_t freed_block = 0;
};

/// @return an Alloc or Free of the range in `step`; time and thread are left to the sink.
template <typename MemoryEvent>
MemoryEvent event_of(const MemoryRange& range, uint32_t step) {
  MemoryEvent event;
  event.header.step = step;
  event.address = range.base;
  event.bytes = range.bytes;
  event.generation = range.generation;
  event.source = range.source;
  event.device = range.device;
  event.stream = range.stream;
  return event;
}

class AddressMap {
 public:
  /// Starts a generation. Live ranges that overlap it are ended first, since their free was not
  /// seen: framework ranges by a framework range, driver ranges by a driver range.
  /// @return the range with its new generation.
  MemoryRange allocate(MemoryRange range) {
    range.generation = new_generation();
    restore(range);
    return range;
  }
  /// As allocate(), for a range that has its generation already.
  void restore(const MemoryRange& range);

  /// @return a number for a range that the map does not have yet, or never will.
  [[nodiscard]] uint64_t new_generation() {
    return last_generation_.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  /// Ends the live range that starts at `base`: the framework's if `source` is the framework, else
  /// the driver's, whatever its source. (Pool memory, imported memory and plain memory are freed by
  /// the same calls.) @return the freed range; nullopt if there is none, as for memory that was
  /// allocated before tracing began.
  std::optional<MemoryRange> release(uint64_t base, format::MemorySource source);

  /// @return the live range that contains `address`, a framework range before a driver range; else
  /// the range that was freed there last; else nullopt.
  [[nodiscard]] std::optional<MemoryRange> find(uint64_t address) const;

  /// The same lookup in less time, for callers that need the generation only.
  [[nodiscard]] MemoryAllocation allocation_at(uint64_t address) const noexcept {
    if (!table_.may_hold(address)) return {};
    // Nothing lies inside a live block, so there is nothing else to find.
    const uint64_t block = blocks_.generation_at(address);
    return block != 0 ? MemoryAllocation{address, block} : table_.allocation_at(address);
  }

  /// @return the generation that was started last.
  [[nodiscard]] uint64_t last_generation() const {
    return last_generation_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t live_count() const { return live_.load(std::memory_order_relaxed); }

  /// @return bytes of memory that the map uses.
  [[nodiscard]] uint64_t bytes() const {
    const Lock lock(writing_);
    return table_.bytes() + blocks_.bytes() + freed_.capacity() * sizeof(Freed);
  }

 private:
  /// A free that is remembered until kMaxFreed later ones have happened.
  struct Freed {
    uint32_t record = 0;
    uint32_t generation = 0;  ///< the lower half; shows whether the record was recycled
  };

  /// @param[out] range  the range that was ended.
  void end(uint32_t record, Layer layer, MemoryRange& range) CONVTRACE_REQUIRES(writing_);
  void end_overlapped(const RangeRecord& range, Layer layer) CONVTRACE_REQUIRES(writing_);
  void remember(const Freed& freed) CONVTRACE_REQUIRES(writing_);

  mutable Mutex writing_;
  AddressTable table_;  ///< written by the holder of the mutex, read by any thread
  LiveBlocks blocks_;   ///< the same
  std::vector<Freed> freed_ CONVTRACE_GUARDED_BY(writing_);  ///< a ring once it is full
  size_t oldest_freed_ CONVTRACE_GUARDED_BY(writing_) = 0;
  std::atomic<uint64_t> last_generation_{0};
  std::atomic<uint64_t> live_{0};
};

}  // namespace convtrace::cupti
