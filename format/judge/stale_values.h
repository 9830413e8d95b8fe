#pragma once
/// @file stale_values.h
/// Values that changed because their memory was given to somebody else between being made and being
/// read.
///
/// A record of a tensor says which storage it lies in, in which life of the memory below, after how
/// many in-place writes, and what its bytes hash to. If a later record of the same storage, place
/// and version lies in *another* life and has another hash, the memory was freed under it and
/// rewritten. A storage that gave its memory away and got it back (resize_, FSDP) looks the same,
/// so it must have been seen that the first life belonged to another storage: one that was recorded
/// in it before.
///
/// Place:    memory_judge.h.
/// Threads:  one.
/// Memory:   the last 65536 values and lives.

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "format/events.h"

namespace convtrace::judge {

/// A value as it was when it was first seen.
struct MadeValue {
  format::ValueId id;
  format::Place place;
  uint32_t step = 0;
  format::StringId slot, op;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

class StaleValues {
 public:
  static constexpr size_t kMost = size_t{1} << 16;

  /// @return what `event`, which reads it, once was; nothing if all is well.
  std::optional<MadeValue> see(const format::TensorStats& event);

 private:
  /// A table that forgets what was put into it first.
  template <typename Value>
  class Recent {
   public:
    /// @return the value of the key, and whether it was there before.
    std::pair<Value&, bool> get(uint64_t key) {
      const auto [at, added] = values_.try_emplace(key);
      if (added) {
        order_.push_back(key);
        if (order_.size() > kMost) {
          values_.erase(order_.front());
          order_.pop_front();
        }
      }
      return {at->second, !added};
    }
    [[nodiscard]] const Value* find(uint64_t key) const {
      const auto at = values_.find(key);
      return at == values_.end() ? nullptr : &at->second;
    }

   private:
    std::unordered_map<uint64_t, Value> values_;
    std::deque<uint64_t> order_;
  };

  Recent<MadeValue> values_;  ///< by storage and offset
  Recent<uint64_t> owners_;   ///< by generation: the storage that was seen in it first
};

}  // namespace convtrace::judge
