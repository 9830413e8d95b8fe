#pragma once
/// @file file_sink.h
/// A Sink that writes one new file from inside a host program.
///
/// Place:    opened by the engine's writer thread; owned by a TraceWriter.
/// Threads:  one owner thread.
/// Errors:   a failed append truncates the file to its former size, so the file always ends with a
///           whole record. kNotFound: the program has closed the descriptor, and the file is not to
///           be found by its path any more; see file_thread.h, which keeps the bytes out of the
///           program's files.
/// Signals:  none reach the host; beyond RLIMIT_FSIZE the caller gets kNoSpace.

#include <memory>
#include <utility>

#include "format/base/bytes.h"
#include "format/file/file_thread.h"
#include "format/file/sink.h"

namespace convtrace::format {

class FileSink final : public Sink {
 public:
  /// Creates `path` with mode 0600, since a trace contains data and command lines. Never follows a
  /// link or replaces an existing file.
  /// @return kAlreadyExists, kNoSpace, kIoError; detail is errno.
  [[nodiscard]] static Result<std::unique_ptr<Sink>> create(const char* path) noexcept;

  /// @param file  an empty regular file.
  explicit FileSink(std::shared_ptr<FileThread> file) noexcept : file_(std::move(file)) {}
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  [[nodiscard]] Status append(Bytes a, Bytes b) noexcept override;
  [[nodiscard]] uint64_t size() const noexcept override { return size_; }

 private:
  const std::shared_ptr<FileThread> file_;
  uint64_t size_ = 0;
};

}  // namespace convtrace::format
