#pragma once
/// @file event_encoder.h
/// Collects events into the typed columns of one chunk and makes its payload.
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

/// What the record header says of a chunk.
struct ChunkSummary {
  uint64_t time_begin_ns = 0;
  uint64_t time_end_ns = 0;
  uint32_t step_begin = kNoStep;
  uint32_t step_end = kNoStep;
  uint32_t event_count = 0;
  bool urgent = false;  ///< holds an error finding
  bool notes = false;   ///< holds a finding or a loss
  bool facts = false;   ///< holds a fact
};

class EventEncoder {
 public:
  /// @param definitions  of the events' ids, for the step sums; must outlive this.
  explicit EventEncoder(const Definitions& definitions);
  ~EventEncoder();

  /// Copies one event into the columns under the next seq; its own header.seq is not looked at.
  /// Messages beyond kMaxStringBytes are cut.
  /// @return kLimitExceeded when it is larger than kMaxEventBytes or has too many operands,
  /// dimensions or ranges; it is then not part of the chunk.
  [[nodiscard]] Status add(const Event& event);

  /// @return whether the chunk has reached its size and should be finished before the next event.
  [[nodiscard]] bool full() const;
  [[nodiscard]] const ChunkSummary& summary() const;

  /// Makes the payload. Valid until the next call of any member.
  /// @param first_seq  seq of the first event; the others follow without gaps.
  [[nodiscard]] Bytes finish(uint64_t first_seq);

  /// @return the step sums of the chunk's events, ascending by step.
  [[nodiscard]] const std::vector<StepSums>& sums();

  /// Forgets all events.
  void clear();

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

}  // namespace convtrace::format
