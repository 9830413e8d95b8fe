#pragma once
/// @file describe.h
/// An event as text with every field of it, bit-exact, so that two events are equal when their
/// texts are.
///
/// Why:      the structs hold spans, so they have no ==; and a text says in a failed test what
///           differs. The lists of fields in events.h say what there is.

#include <string>

#include "format/model/events.h"

namespace convtrace::test {

[[nodiscard]] std::string describe(const format::Event& event);

/// Without header.seq, which is the writer's.
[[nodiscard]] std::string describe_content(format::Event event);

}  // namespace convtrace::test
