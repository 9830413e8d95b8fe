#pragma once
/// @file write_digest.h
/// Writes the data of one trace that `convtrace origin` needs as a digest (rows.h, table_codec.h).
///
/// Memory:   all calls and values of the trace that matter to `convtrace origin`, 170 bytes each.

#include <ostream>
#include <string>

namespace convtrace::origin {

/// A trace that cannot be read is a digest, too: one that says so.
/// @param out  gets it; a failure to write shows in its state.
void write_digest(const std::string& path, std::ostream& out);

}  // namespace convtrace::origin
