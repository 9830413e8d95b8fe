#pragma once
/// @file trace_reader.h
/// Opens a .ctrace file, whatever state it is in, and streams its events.
///
/// Place:    used by every tool; over byte_source.h, record_scanner.h, trace_index.h,
/// event_decoder.h. Threads:  one reader per thread; several readers may open one file, also while
/// it is being written. Memory:   one chunk at a time plus 72 bytes a record. Errors:   only open()
/// fails. Damage is counted in state() and problems(), and reading goes on. Source:
/// format/FORMAT.md; hostile input is an ordinary case.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/base/status.h"
#include "format/definitions.h"
#include "format/events.h"
#include "format/meta.h"
#include "reader/byte_source.h"
#include "reader/problem.h"

namespace convtrace::reader {

enum class OpenPolicy : uint8_t {
  kIndexOnly,    ///< fail with kTruncated when there is no valid footer and index
  kIndexOrScan,  ///< the default
  kScan,         ///< ignore footer and index
};

/// complete: footer found and everything fits. unclosed: no footer, the tail may be cut (a kill).
/// damaged: something was skipped that had been written.
enum class TraceState : uint8_t { kComplete, kUnclosed, kDamaged };
const char* to_string(TraceState state);

struct RecordCounts {
  uint64_t records = 0;       ///< of the container, without index and footer
  uint64_t events = 0;        ///< by the headers of readable chunks
  uint64_t lost_records = 0;  ///< gaps in record numbers, and records whose payload is damaged
  uint64_t skipped_bytes = 0;
};

class TraceReader {
 public:
  /// @return kNotATrace, kUnsupportedVersion (detail: major), kUnsupportedFeature (detail: bit),
  /// kIoError (detail: errno; a directory is EISDIR), kTruncated (shorter than a file header, or
  /// kIndexOnly without an index).
  [[nodiscard]] static Result<std::unique_ptr<TraceReader>> open(
      const std::string& path, OpenPolicy policy = OpenPolicy::kIndexOrScan);
  /// The same over any bytes.
  [[nodiscard]] static Result<std::unique_ptr<TraceReader>> open(
      std::unique_ptr<ByteSource> source, OpenPolicy policy = OpenPolicy::kIndexOrScan);
  ~TraceReader();

  /// State known so far. Decoding may turn complete or unclosed into damaged: final after the last
  /// next().
  [[nodiscard]] TraceState state() const;
  [[nodiscard]] const format::TraceMeta& meta() const;
  [[nodiscard]] const format::Definitions& definitions() const;
  [[nodiscard]] const std::vector<Problem>& problems() const;
  [[nodiscard]] RecordCounts counts() const;
  [[nodiscard]] uint64_t file_bytes() const;
  /// Events not shown because a definition they need is lost; final after the last next().
  [[nodiscard]] uint64_t events_without_definition() const;

  /// Gives the next event in file order.
  /// @return false at the end. The event's spans are valid until the next call.
  bool next(format::Event& event);

  /// Starts again at the first event.
  void rewind();

 private:
  struct Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
