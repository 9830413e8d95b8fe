#pragma once
/// @file memory_ledger.h
/// Computes the figures of torch.cuda.memory_stats() from a trace: the memory that a framework's
/// allocator has given out, and the memory that it holds.
///
/// Threads:  one.

#include <cstdint>
#include <map>

#include "format/model/events.h"

namespace convtrace::tools {

/// A number of bytes, and its maximum so far.
struct Level {
  uint64_t now = 0;
  uint64_t peak = 0;
  void set(uint64_t bytes) {
    now = bytes;
    if (bytes > peak) peak = bytes;
  }
};

/// The figures of one device.
class MemoryLedger {
 public:
  void add(const format::Alloc& event);
  void remove(const format::Free& event);

  [[nodiscard]] const Level& allocated() const { return allocated_; }
  /// Bytes of segments in which blocks were allocated.
  [[nodiscard]] const Level& cached() const { return cached_; }
  /// Bytes of free parts in segments that also have a used part.
  [[nodiscard]] const Level& inactive() const { return inactive_; }

 private:
  struct Segment {
    uint64_t bytes = 0;
    uint64_t used = 0;
    bool cached = false;  ///< a block was allocated in it
  };
  struct Block {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  static uint64_t inactive_of(const Segment& segment) {
    return segment.used == 0 ? 0 : segment.bytes - segment.used;
  }
  /// Calls change(segment, bytes) for each segment that the block overlaps.
  template <typename Change>
  void each_segment(const Block& block, const Change& change);
  void take(const Block& block);
  void give_back(const Block& block);
  void drop_segment(uint64_t address);

  std::map<uint64_t, Block> blocks_;      ///< by generation
  std::map<uint64_t, Segment> segments_;  ///< by address
  Level allocated_, cached_, inactive_;
};

}  // namespace convtrace::tools
