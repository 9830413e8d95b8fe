#pragma once
/// @file stale_values.h
/// Finds values that changed because their memory was allocated again between their making and
/// their reading.
///
/// A record of a tensor has the storage, the allocation below it, the number of in-place writes,
/// and a hash of the bytes. If a later record of the same storage, place and version has another
/// hash and lies in another allocation, or in memory without an owner, then the memory was freed in
/// between and overwritten. A storage that gave its memory away and got it back (resize_, FSDP)
/// looks the same. So the first allocation must have been used by another storage: one that was
/// recorded in it before.
///
/// Place:    used by memory_judge.h.
/// Threads:  one.
/// Memory:   the last 65536 values and allocations.

#include <cstdint>
#include <optional>

#include "format/findings/common/recent.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// A value at its first record.
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
  /// @return the former value of the tensor that `event` reads; nothing if it did not change.
  std::optional<MadeValue> see(const format::TensorStats& event);

 private:
  [[nodiscard]] bool is_stale(const MadeValue& made, const format::TensorStats& event) const;
  [[nodiscard]] std::optional<MadeValue> read_of_nobodys(const format::TensorStats& event) const;

  Recent<MadeValue> values_;  ///< by storage and offset
  Recent<uint64_t> owners_;   ///< by generation: the first storage that was recorded in it
};

}  // namespace convtrace::judge
