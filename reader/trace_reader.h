#pragma once
/// @file trace_reader.h
/// Opens a .ctrace file in any state and streams its events.
///
/// Place:    used by every tool; over trace_container.h (records) and chunk_stream.h (events).
/// Threads:  one owner thread for a reader. Several readers may open one file, also while it is
///           written. A reader with more threads decodes ahead.
/// Memory:   one chunk, or two a thread, plus 88 bytes a record.
/// Errors:   only open() fails. Later damage is counted in state() and problems(), and reading
///           continues.
/// Source:   format/FORMAT.md; hostile input is an ordinary case.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "format/model/events.h"
#include "reader/kind_set.h"
#include "reader/trace_container.h"

namespace convtrace::reader {

class TraceReader {
 public:
  /// @param threads  to decode with, including the calling one.
  /// @return kNotATrace, kUnsupportedVersion (detail: major), kUnsupportedFeature (detail: bit),
  /// kIoError (detail: errno; a directory is EISDIR), kTruncated (shorter than a file header, or
  /// kIndexOnly without an index).
  [[nodiscard]] static Result<std::unique_ptr<TraceReader>> open(
      const std::string& path, OpenPolicy policy = OpenPolicy::kIndexOrScan, unsigned threads = 1);
  /// The same for any source of bytes.
  [[nodiscard]] static Result<std::unique_ptr<TraceReader>> open(
      std::unique_ptr<ByteSource> source, OpenPolicy policy = OpenPolicy::kIndexOrScan,
      unsigned threads = 1);
  ~TraceReader();

  /// The state that is known so far. Decoding may turn complete or unclosed into damaged, so it is
  /// final after the last next().
  [[nodiscard]] TraceState state() const;
  [[nodiscard]] const format::TraceMeta& meta() const;
  [[nodiscard]] const format::Definitions& definitions() const;
  [[nodiscard]] const std::vector<Problem>& problems() const;
  [[nodiscard]] RecordCounts counts() const;
  [[nodiscard]] uint64_t file_bytes() const;
  /// Number of events that were skipped because a definition is lost; final after the last next().
  [[nodiscard]] uint64_t events_without_definition() const;

  /// @return the next event in file order, valid until the next call; null at the end.
  const format::Event* next();

  /// Restarts at the first event.
  void rewind();

  /// Restarts, and decodes only some of the events.
  /// @param wanted    kinds to decode, by the header of a chunk; called from any thread of the
  /// reader.
  /// @param unwanted  what to do with a chunk that has no wanted event.
  void select(std::function<KindSet(const format::RecordHeader&)> wanted,
              Unwanted unwanted = Unwanted::kSkip);

  /// OpenPolicy::kLive: looks for appended records, after which next() continues. Only whole
  /// records are read.
  /// @param ended  no process writes any more: the rest at the end is judged as in any other file.
  void refresh(bool ended);

  /// The records that contain the events.
  [[nodiscard]] const TraceContainer& container() const;

 private:
  struct Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
