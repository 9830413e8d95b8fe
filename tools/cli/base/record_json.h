#pragma once
/// @file record_json.h
/// Converts records of a trace to JSON objects. The keys are an interface that scripts rely on.
///
/// Threads:  pure functions.
/// Source:   key names and spelling: docs/reference.md "JSON".

#include "format/model/definitions.h"
#include "format/model/events.h"
#include "format/model/meta.h"
#include "reader/problem.h"
#include "tools/common/json.h"

namespace convtrace::tools {

/// @param rank of the trace, for the keys that every record has.
[[nodiscard]] Json event_json(const format::Event& event, const format::Definitions& definitions,
                              uint32_t rank);

/// The META of a trace as its first record.
[[nodiscard]] Json meta_record_json(const format::TraceMeta& meta);

/// The same facts as `convtrace info --json` shows them.
[[nodiscard]] Json meta_json(const format::TraceMeta& meta);

/// The problems of a file, for the key `problems`.
[[nodiscard]] Json problems_json(const std::vector<reader::Problem>& problems);

}  // namespace convtrace::tools
