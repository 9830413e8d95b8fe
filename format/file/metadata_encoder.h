#pragma once
/// @file metadata_encoder.h
/// Encodes the payloads of META, DEFS and SUMS records.
///
/// Place:    trace_writer.cpp; reader/metadata_decoder.h is its mirror.
/// Threads:  pure functions; `definitions` may grow concurrently.
/// Errors:   allocation failure leaves as std::bad_alloc, which TraceWriter catches.
/// Source:   format/FORMAT.md sections 4, 5 and 6.7.

#include <cstddef>
#include <span>
#include <vector>

#include "format/file/columns/step_sums.h"
#include "format/model/definitions.h"
#include "format/model/meta.h"

namespace convtrace::format {

/// Truncates texts to kMaxStringBytes.
[[nodiscard]] std::vector<std::byte> encode_meta(const TraceMeta& meta);

/// A payload with definitions from `from` on, at most about kMaxDefsBytes, so possibly not up to
/// `to`.
struct DefsPayload {
  std::vector<std::byte> bytes;
  Definitions::Counts end;  ///< the end of the stored part; call again from here until it is `to`
  uint32_t item_count = 0;
};
inline constexpr size_t kMaxDefsBytes = 1u << 20;
[[nodiscard]] DefsPayload encode_defs(const Definitions& definitions,
                                      const Definitions::Counts& from,
                                      const Definitions::Counts& to);

/// @param events  number of events of all kinds in the EVENTS records that the sums cover.
[[nodiscard]] std::vector<std::byte> encode_sums(std::span<const StepSums> sums, uint64_t events);

}  // namespace convtrace::format
