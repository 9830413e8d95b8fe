#pragma once
/// @file trace_container.h
/// A trace as records: where they are, what META and DEFS say, and what is wrong with them.
///
/// Place:    chunk_stream.h reads its EVENTS; `convtrace recover` copies its records.
/// Threads:  one owner thread; records() and source() may be read by others while a file that is
///           not live is open.
/// Errors:   open() fails; later damage goes into problems() and the counts.
/// Source:   format/FORMAT.md sections 2 to 5 and 7.

#include <memory>
#include <vector>

#include "format/file/layout.h"
#include "format/model/definitions.h"
#include "format/model/meta.h"
#include "reader/byte_source.h"
#include "reader/columns/definition_check.h"
#include "reader/problem.h"

namespace convtrace::reader {

enum class OpenPolicy : uint8_t {
  kIndexOnly,    ///< fail with kTruncated when there is no valid footer and index
  kIndexOrScan,  ///< the default
  kScan,         ///< ignore footer and index
  kLive,         ///< scan, and take the end for what has been written so far: see refresh()
};

/// complete: footer found and everything fits. unclosed: no footer, the tail may be cut (a kill).
/// damaged: something was skipped that had been written.
enum class TraceState : uint8_t { kComplete, kUnclosed, kDamaged };
const char* to_string(TraceState state);

struct RecordCounts {
  uint64_t records = 0;        ///< of the container, without index and footer
  uint64_t events = 0;         ///< by the headers of readable chunks
  uint64_t lost_records = 0;   ///< gaps in record numbers, and records whose payload is damaged
  uint64_t lost_events = 0;    ///< of chunks whose payload is damaged, by their headers
  uint64_t skipped_bytes = 0;  ///< damaged
  uint64_t cut_bytes = 0;      ///< at the end, of a record that was never finished
};

/// The problem of a record whose header is good in the index alone.
inline constexpr const char* kHeaderDamaged = "record header damaged; the index's copy was used";

class TraceContainer {
 public:
  /// @return as TraceReader::open.
  [[nodiscard]] static Result<std::unique_ptr<TraceContainer>> open(
      std::unique_ptr<ByteSource> source, OpenPolicy policy);
  ~TraceContainer();

  /// kLive: takes what has been appended since, but a record only when all of it is there.
  /// @param ended  nobody writes any more: what is left at the end is judged as in any other file.
  void refresh(bool ended);

  /// META, DEFS, EVENTS and kinds unknown here, in file order.
  [[nodiscard]] const std::vector<format::RecordEntry>& records() const;
  [[nodiscard]] bool closed() const;  ///< a footer ends the file
  [[nodiscard]] const ByteSource& source() const;
  [[nodiscard]] const format::TraceMeta& meta() const;
  [[nodiscard]] const format::Definitions& definitions() const;
  [[nodiscard]] const DefinitionCheck& definition_check() const;

  [[nodiscard]] const ProblemList& problems() const;
  [[nodiscard]] RecordCounts counts() const;
  /// @param events_without_definition  that were not shown.
  /// @return the state as far as is known.
  [[nodiscard]] TraceState state(uint64_t events_without_definition) const;

  /// What a reader of payloads found. Said twice of one record, it counts once.
  void report(size_t record, const char* text);
  void report_lost(size_t record, const char* text);
  /// @param payload_status  why the payload could not be had.
  void report_lost(size_t record, const Status& payload_status);

 private:
  struct Impl;
  explicit TraceContainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
