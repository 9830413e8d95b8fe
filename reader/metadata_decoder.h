#pragma once
/// @file metadata_decoder.h
/// Verifies and decodes the payloads of META, DEFS and SUMS records.
///
/// Place:    trace_reader.cpp; format/file/metadata_encoder.h is its mirror.
/// Errors:   kCorrupt, kLimitExceeded; definitions before a bad one are kept.
/// Source:   format/FORMAT.md sections 4, 5 and 6.7.

#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/file/columns/step_sums.h"
#include "format/model/definitions.h"
#include "format/model/meta.h"

namespace convtrace::reader {

/// Adds the contents of a META payload to `meta`: later values of a fact replace earlier ones.
[[nodiscard]] Status decode_meta(Bytes raw, format::TraceMeta& meta);

[[nodiscard]] Status decode_defs(Bytes raw, format::Definitions& definitions);

/// @param[out] events  number of events of all kinds in the EVENTS records that the sums cover.
[[nodiscard]] Status decode_sums(Bytes raw, std::vector<format::StepSums>& sums, uint64_t& events);

}  // namespace convtrace::reader
