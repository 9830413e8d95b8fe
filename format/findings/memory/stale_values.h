#pragma once
/// @file stale_values.h
/// Values that changed because their memory was given to somebody else between being made and being
/// read.
///
/// A record of a tensor says which storage it lies in, in which life of the memory below, after how
/// many in-place writes, and what its bytes hash to. If a later record of the same storage, place
/// and version lies in *another* life, or in memory that nobody owns any more, and has another
/// hash, the memory was freed under it and rewritten. A storage that gave its memory away and got
/// it back (resize_, FSDP) looks the same, so it must have been seen that the first life belonged
/// to another storage: one that was recorded in it before.
///
/// Place:    memory_judge.h.
/// Threads:  one.
/// Memory:   the last 65536 values and lives.

#include <cstdint>
#include <optional>

#include "format/findings/common/recent.h"
#include "format/model/events.h"

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
  /// @return what `event`, which reads it, once was; nothing if all is well.
  std::optional<MadeValue> see(const format::TensorStats& event);

 private:
  [[nodiscard]] bool is_stale(const MadeValue& made, const format::TensorStats& event) const;
  [[nodiscard]] std::optional<MadeValue> read_of_nobodys(const format::TensorStats& event) const;

  Recent<MadeValue> values_;  ///< by storage and offset
  Recent<uint64_t> owners_;   ///< by generation: the storage that was seen in it first
};

}  // namespace convtrace::judge
