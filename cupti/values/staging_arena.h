#pragma once
/// @file staging_arena.h
/// A ring allocator for places in a fixed piece of memory.
///
/// Threads:  any.

#include <cstdint>
#include <deque>
#include <optional>

#include "format/base/mutex.h"

namespace convtrace::cupti {

class StagingArena {
 public:
  static constexpr uint64_t kAlignment = 256;

  void set_size(uint64_t bytes) noexcept { size_ = bytes; }

  /// @return the offset of `bytes` contiguous bytes; nothing if there is no room.
  [[nodiscard]] std::optional<uint64_t> claim(uint64_t bytes) noexcept try {
    const uint64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const Lock lock(mutex_);
    uint64_t begin = places_.empty() ? 0 : places_.back().end;
    if (places_.empty() || begin > places_.front().begin) {
      if (taken > size_ - begin) begin = 0;  // wrap around
      if (taken > size_ - begin) return std::nullopt;
    }
    if (!places_.empty() && begin <= places_.front().begin &&
        taken > places_.front().begin - begin) {
      return std::nullopt;
    }
    places_.push_back({begin, begin + taken, false});
    return begin;
  } catch (...) {
    return std::nullopt;
  }

  /// Frees the place at `offset`. Its memory is reused after that of all older places.
  void release(uint64_t offset) noexcept {
    const Lock lock(mutex_);
    for (Place& place : places_)
      if (place.begin == offset) place.free = true;
    while (!places_.empty() && places_.front().free) places_.pop_front();
  }

 private:
  struct Place {
    uint64_t begin, end;
    bool free;
  };
  Mutex mutex_;
  uint64_t size_ = 0;
  std::deque<Place> places_ CONVTRACE_GUARDED_BY(mutex_);  ///< oldest first
};

}  // namespace convtrace::cupti
