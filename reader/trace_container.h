#pragma once
/// @file trace_container.h
/// A trace as a list of records, with the contents of META and DEFS and the problems that were
/// found.
///
/// Place:    chunk_stream.h reads its EVENTS; `convtrace recover` copies its records.
/// Threads:  one owner thread; other threads may read records() and source() while a file that is
///           not live is open.
/// Errors:   open() may fail; later damage is added to problems() and the counts.
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
  kLive,         ///< scan a file that is still being written: see refresh()
};

/// complete: there is a footer and everything is consistent. unclosed: there is no footer, and the
/// end may be truncated (a kill). damaged: something that was written was skipped.
enum class TraceState : uint8_t { kComplete, kUnclosed, kDamaged };
const char* to_string(TraceState state);

struct RecordCounts {
  uint64_t records = 0;        ///< records in the container, without index and footer
  uint64_t events = 0;         ///< from the headers of readable chunks
  uint64_t lost_records = 0;   ///< gaps in record numbers, and records whose payload is damaged
  uint64_t lost_events = 0;    ///< in chunks with damaged payloads, from their headers
  uint64_t skipped_bytes = 0;  ///< damaged
  uint64_t cut_bytes = 0;      ///< at the end, of a record that was not finished
};

/// The problem of a record whose header is valid only in the index.
inline constexpr const char* kHeaderDamaged = "record header damaged; the index's copy was used";

class TraceContainer {
 public:
  /// @return as TraceReader::open.
  [[nodiscard]] static Result<std::unique_ptr<TraceContainer>> open(
      std::unique_ptr<ByteSource> source, OpenPolicy policy);
  ~TraceContainer();

  /// kLive: reads the whole records that were appended since the last call.
  /// @param ended  no process writes any more: the rest at the end is judged as in any other file.
  void refresh(bool ended);

  /// META, DEFS, EVENTS and unknown kinds, in file order.
  [[nodiscard]] const std::vector<format::RecordEntry>& records() const;
  [[nodiscard]] bool closed() const;  ///< a footer ends the file
  [[nodiscard]] const ByteSource& source() const;
  [[nodiscard]] const format::TraceMeta& meta() const;
  [[nodiscard]] const format::Definitions& definitions() const;
  [[nodiscard]] const DefinitionCheck& definition_check() const;

  [[nodiscard]] const ProblemList& problems() const;
  [[nodiscard]] RecordCounts counts() const;
  /// @param events_without_definition  number of events that could not be shown.
  /// @return the state that is known so far.
  [[nodiscard]] TraceState state(uint64_t events_without_definition) const;

  /// Adds a problem that a reader of payloads found. Only the first report about a record counts.
  void report(size_t record, const char* text);
  void report_lost(size_t record, const char* text);
  /// @param payload_status  why the payload could not be read.
  void report_lost(size_t record, const Status& payload_status);

 private:
  struct Impl;
  explicit TraceContainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
