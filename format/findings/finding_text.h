#pragma once
/// @file finding_text.h
/// Converts a finding about memory to a record with a text: what happened, what it means, what to
/// do.
///
/// Threads:  pure functions.

#include <string>

#include "format/findings/memory/memory_judge.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// The operand that held the address: "arg:1", "destination", "source"; "" for a tensor, which has
/// a slot.
[[nodiscard]] std::string slot_text(const MemoryFinding& finding);

/// @return one paragraph for readers who do not know the manual.
[[nodiscard]] std::string describe(const MemoryFinding& finding,
                                   const format::Definitions& definitions);

/// @return the record without its message. The caller interns a slot that is slot_text().
[[nodiscard]] format::Finding record_of(const MemoryFinding& finding);

}  // namespace convtrace::judge
