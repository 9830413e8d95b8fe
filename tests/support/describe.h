#pragma once
/// @file describe.h
/// Converts an event to a text with every field, bit-exact: events are equal if their texts are.
///
/// Why:      the structs contain spans, so they have no ==; and the text of a failed test shows the
///           difference. It is made from the lists of fields in events.h.

#include <string>

#include "format/model/events.h"

namespace convtrace::test {

[[nodiscard]] std::string describe(const format::Event& event);

/// Leaves out header.seq, which the writer sets.
[[nodiscard]] std::string describe_content(format::Event event);

}  // namespace convtrace::test
