#pragma once
/// @file event_encoder.h
/// Collects events into the columns of one chunk and encodes the chunk's payload.
///
/// Place:    trace_writer.cpp; reader/event_decoder.h is its mirror.
/// Threads:  one owner thread.
/// Errors:   Status; allocation failure leaves as std::bad_alloc, which TraceWriter catches.
/// Source:   format/FORMAT.md section 6; the columns themselves: format/schema/chunk.fbs.

#include <cstdint>
#include <memory>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/file/columns/step_sums.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::format {

/// The facts about a chunk that its record header needs.
struct ChunkSummary {
  uint64_t time_begin_ns = 0;
  uint64_t time_end_ns = 0;
  uint32_t step_begin = kNoStep;
  uint32_t step_end = kNoStep;
  uint32_t event_count = 0;
  bool urgent = false;  ///< contains an error finding
  bool notes = false;   ///< contains a finding or a loss
  bool facts = false;   ///< contains a fact
};

class EventEncoder {
 public:
  /// @param definitions  contains the events' ids, for the step sums; must outlive this.
  explicit EventEncoder(const Definitions& definitions);
  ~EventEncoder();

  /// Copies one event into the columns under the next seq; its own header.seq is ignored. Truncates
  /// messages to kMaxStringBytes.
  /// @return kLimitExceeded if it is larger than kMaxEventBytes or has too many operands,
  /// dimensions or ranges; the chunk is then unchanged.
  [[nodiscard]] Status add(const Event& event);

  /// @return whether the chunk has reached its size and should be finished before the next event.
  [[nodiscard]] bool full() const;
  [[nodiscard]] const ChunkSummary& summary() const;

  /// Encodes the payload, which is valid until the next call of any member.
  /// @param first_seq  seq of the first event; the others follow without gaps.
  [[nodiscard]] Bytes finish(uint64_t first_seq);

  /// @return the step sums of the chunk's events, ascending by step.
  [[nodiscard]] const std::vector<StepSums>& sums();

  /// Removes all events.
  void clear();

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

}  // namespace convtrace::format
