#pragma once
/// @file shared_names.h
/// Turns the ids of one trace into those of a table that several traces share, or that outlives it.
/// A slot is taken apart once, when it is met first.
///
/// Place:    step_stream.h of the diff, judge.h of `convtrace check`, rank_scan.h of `convtrace
///           origin`.
/// Threads:  not thread-safe.

#include <vector>

#include "format/model/definitions.h"
#include "tools/trace/model/slot.h"

namespace convtrace::diff {

class SharedNames {
 public:
  struct Slot {
    format::StringId id, name;  ///< the ids of the whole text and of name_of()
    Role role = Role::kOther;
    uint32_t number = 0;
  };

  /// @param names  the table; must outlive this.
  explicit SharedNames(format::Definitions& names) : names_(names) {}

  /// @param texts  of the trace, always the same one. @return none for none.
  format::StringId of(const format::Definitions& texts, format::StringId local);
  const Slot& slot(const format::Definitions& texts, format::StringId local);

 private:
  format::Definitions& names_;
  std::vector<format::StringId> ids_;  ///< by ids of the trace; none: not met yet
  std::vector<Slot> slots_;
};

}  // namespace convtrace::diff
