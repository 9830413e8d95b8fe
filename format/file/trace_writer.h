#pragma once
/// @file trace_writer.h
/// Writes one .ctrace file: collects events in chunks, writes definitions before their first use,
/// and on close the index and the footer.
///
/// Place:    interposer/core/writer/writer_thread.cpp and tests/support/trace_builder.h call this;
///           bytes go to a Sink.
/// Threads:  one owner thread; `definitions` may grow concurrently.
/// Errors:   sticky: after the first failure every later call returns the same Status and writes
///           nothing.
/// Source:   format/FORMAT.md.

#include <cstdint>
#include <memory>

#include "format/file/columns/step_sums.h"
#include "format/file/layout.h"
#include "format/file/sink.h"
#include "format/model/definitions.h"
#include "format/model/events.h"
#include "format/model/meta.h"

namespace convtrace::format {

/// One trace being written.
///
/// Ownership: owns the Sink; refers to `definitions`, which must outlive it. The destructor does
///            not finish the file: a file without a footer counts as not closed, like one after a
///            crash.
class TraceWriter {
 public:
  /// Writes the file header and the META record. Fills in uuid and clocks of `meta` if they are
  /// zero.
  [[nodiscard]] static Result<std::unique_ptr<TraceWriter>> create(std::unique_ptr<Sink> sink,
                                                                   TraceMeta meta,
                                                                   const Definitions& definitions);
  ~TraceWriter();

  /// Adds one event to the open chunk under the next seq, and closes the chunk when it is full.
  /// Events are appended in the order of the program; header.t_ns need not ascend.
  [[nodiscard]] Status append(const Event& event);

  /// Writes META again, with facts that became known later (framework versions, device names).
  [[nodiscard]] Status append_meta(const TraceMeta& meta);

  /// Writes the open chunk, if it is not empty. Called after 1 s, at an urgent event, and before
  /// close.
  /// @post on kOk the events survive a kill of this process (they are in the page cache), but not a
  /// power loss.
  [[nodiscard]] Status flush();

  /// Appends an EVENTS record of another trace in its stored form, after the open chunk. Its
  /// definitions must have the same ids in `definitions`.
  /// @param header     of the record, for `payload` as stored.
  /// @param first_seq  of its first event; at least next_seq().
  /// @param sums       its step sums.
  [[nodiscard]] Status append_chunk(const RecordHeader& header, std::span<const std::byte> payload,
                                    uint64_t first_seq, std::span<const StepSums> sums);

  /// Appends a BLOB record with a payload of PartEncoder.
  [[nodiscard]] Status append_blob(std::span<const std::byte> payload);

  /// @return the seq of the next event.
  [[nodiscard]] uint64_t next_seq() const;
  /// Skips seq numbers, those of lost events. @pre the open chunk is empty
  void skip_to(uint64_t seq);

  /// @return the age in ns of the oldest event in the open chunk (by its t_ns against `now_ns`); 0
  /// when the chunk is empty.
  [[nodiscard]] uint64_t open_chunk_age_ns(uint64_t now_ns) const;

  /// Flushes, then writes consolidated definitions, index and footer. No call may follow.
  [[nodiscard]] Status close();

  [[nodiscard]] Status status() const;
  [[nodiscard]] uint64_t bytes_written() const;
  [[nodiscard]] uint64_t events_written() const;

 private:
  struct Impl;
  explicit TraceWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::format
