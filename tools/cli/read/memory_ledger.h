#pragma once
/// @file memory_ledger.h
/// How much memory a framework's allocator has given out and holds, followed from the reports of a
/// trace: the figures of torch.cuda.memory_stats().
///
/// Threads:  one.

#include <cstdint>
#include <map>

#include "format/model/events.h"

namespace convtrace::tools {

/// Bytes, and the most they have been.
struct Level {
  uint64_t now = 0;
  uint64_t peak = 0;
  void set(uint64_t bytes) {
    now = bytes;
    if (bytes > peak) peak = bytes;
  }
};

/// One device.
class MemoryLedger {
 public:
  void add(const format::Alloc& event);
  void remove(const format::Free& event);

  [[nodiscard]] const Level& allocated() const { return allocated_; }
  /// Segments that blocks were given out of.
  [[nodiscard]] const Level& cached() const { return cached_; }
  /// Free parts of segments of which another part is in use.
  [[nodiscard]] const Level& inactive() const { return inactive_; }

 private:
  struct Segment {
    uint64_t bytes = 0;
    uint64_t used = 0;
    bool cached = false;  ///< a block was given out of it
  };
  struct Block {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  static uint64_t inactive_of(const Segment& segment) {
    return segment.used == 0 ? 0 : segment.bytes - segment.used;
  }
  /// Calls change(segment, bytes) for each segment that a block lies in.
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
