#pragma once
/// @file trace_reader.h
/// Opens a .ctrace file, whatever state it is in, and streams its events.
///
/// Place:    used by every tool; over trace_container.h (records) and chunk_stream.h (events).
/// Threads:  one owner thread a reader; several readers may open one file, also while it is being
///           written. A reader given more threads decodes ahead with them.
/// Memory:   one chunk, or two a thread, plus 88 bytes a record.
/// Errors:   only open() fails. Damage is counted in state() and problems(), and reading goes on.
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
  /// @param threads  that decode, this one included.
  /// @return kNotATrace, kUnsupportedVersion (detail: major), kUnsupportedFeature (detail: bit),
  /// kIoError (detail: errno; a directory is EISDIR), kTruncated (shorter than a file header, or
  /// kIndexOnly without an index).
  [[nodiscard]] static Result<std::unique_ptr<TraceReader>> open(
      const std::string& path, OpenPolicy policy = OpenPolicy::kIndexOrScan, unsigned threads = 1);
  /// The same over any bytes.
  [[nodiscard]] static Result<std::unique_ptr<TraceReader>> open(
      std::unique_ptr<ByteSource> source, OpenPolicy policy = OpenPolicy::kIndexOrScan,
      unsigned threads = 1);
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

  /// @return the next event in file order, valid until the next call; null at the end.
  const format::Event* next();

  /// Starts again at the first event.
  void rewind();

  /// Starts again with some of the events.
  /// @param wanted    by the header of a chunk; called from any thread of the reader.
  /// @param unwanted  what is done with a chunk of which no event is wanted.
  void select(std::function<KindSet(const format::RecordHeader&)> wanted,
              Unwanted unwanted = Unwanted::kSkip);

  /// OpenPolicy::kLive: looks for what has been appended; next() then goes on. A record is taken
  /// only when all of it is there.
  /// @param ended  nobody writes any more: what is left at the end is judged as in any other file.
  void refresh(bool ended);

  /// The records below the events.
  [[nodiscard]] const TraceContainer& container() const;

 private:
  struct Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
