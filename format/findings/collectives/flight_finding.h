#pragma once
/// @file flight_finding.h
/// A finding about a tensor that was used while a collective was using it.
///
/// Threads:  plain values and pure functions.

#include <cstdint>
#include <string>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

struct FlightFinding {
  format::FindingKind kind = format::FindingKind::kUsedBeforeWait;
  format::EventHeader header;  ///< the header of the event that caused the finding; step: the use's
  format::Place place;         ///< the place of the use
  format::StringId slot{};     ///< slot of the use; none: only the count of writes shows the use
  format::StringId user{};     ///< the tagged op that used it, or none: a module or an optimizer
  uint64_t address = 0;
  uint64_t bytes = 0;
  format::Op call{};        ///< the collective's tensor, when the call was made
  bool written = false;     ///< by the program; else it was read
  format::StackId until{};  ///< written: the program's line that waits; none: it never does
  uint64_t copied = 0;      ///< used-before-wait: the number of gradients that were copied, or 0
  uint64_t ranks = 0;       ///< of the sum that they were to be
  uint64_t whole = 0;       ///< receive-overlaps: bytes of the overwritten gradient, or 0
  bool reduced = false;     ///< receive-overlaps: that gradient had been reduced
  format::Op other{};       ///< receive-overlaps: the tensor of the earlier call
  bool one_call = false;    ///< receive-overlaps: both are of one call, which is over
  format::Level level = format::Level::kError;
  uint64_t occurrence = 1;  ///< number of findings of the same kind and place, including this one
};

/// @return one paragraph for readers who do not know the manual.
[[nodiscard]] std::string describe(const FlightFinding& finding,
                                   const format::Definitions& definitions);

/// @return the record without its message.
[[nodiscard]] format::Finding record_of(const FlightFinding& finding);

}  // namespace convtrace::judge
