#pragma once
/// @file rare_rows.h
/// Events that are tables of their own.
///
/// Place:    event_decoder.cpp; format/file/columns/rare_tables.h is its mirror.
/// Source:   format/FORMAT.md section 6.6.

#include "format/model/events.h"
#include "format/schema/chunk_generated.h"
#include "reader/columns/definition_check.h"

namespace convtrace::reader {

namespace wire = format::wire;

/// Gives the event of a table but for its header. @return whether all its enumerators are known.
bool read(const wire::Finding& from, format::Finding& event);
bool read(const wire::Diagnostic& from, format::Diagnostic& event);
bool read(const wire::Loss& from, format::Loss& event);
bool read(const wire::Cost& from, format::Cost& event);
bool read(const wire::Fact& from, format::Fact& event);

/// @return whether the texts of all tables are within the limits of a payload of `raw_bytes`.
[[nodiscard]] bool rare_texts_fit(const wire::Chunk& chunk, size_t raw_bytes);

/// @return whether all that findings and facts name is defined.
[[nodiscard]] bool rare_resolved_by(const DefinitionCheck& check, const wire::Chunk& chunk);

}  // namespace convtrace::reader
