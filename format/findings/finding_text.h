#pragma once
/// @file finding_text.h
/// A finding of the memory judge as a record: its sentence says what happened, what it means, what
/// to do.
///
/// Threads:  pure functions.

#include <string>

#include "format/findings/memory/memory_judge.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// What took the address: "arg:1", "destination", "source"; "" for a tensor, which has a slot.
[[nodiscard]] std::string slot_text(const MemoryFinding& finding);

/// @return one paragraph, for somebody who has not read the manual.
[[nodiscard]] std::string describe(const MemoryFinding& finding,
                                   const format::Definitions& definitions);

/// @return all but the message; a slot that is slot_text() is left to who can intern it.
[[nodiscard]] format::Finding record_of(const MemoryFinding& finding);

}  // namespace convtrace::judge
