#pragma once
/// @file file_sink.h
/// A Sink that writes one new file from inside a host program.
///
/// Place:    opened by the engine's writer thread; owned by a TraceWriter.
/// Threads:  one owner thread.
/// Errors:   a failed append truncates the file to its former size, so the file always ends with a
///           whole record.
/// Signals:  beyond RLIMIT_FSIZE the kernel sends SIGXFSZ to the writing thread, which kills the
///           process by default. append() blocks that signal in the calling thread during the write
///           and removes a pending one, so the host notices nothing and the caller gets kNoSpace.
/// Source:   setrlimit(2), write(2), signal(7).

#include <memory>

#include "format/base/bytes.h"
#include "format/file/sink.h"

namespace convtrace::format {

class FileSink final : public Sink {
 public:
  /// Creates `path` with mode 0600, since a trace contains data and command lines. Never follows a
  /// link or replaces an existing file.
  /// @return kAlreadyExists, kNoSpace, kIoError; detail is errno.
  [[nodiscard]] static Result<std::unique_ptr<Sink>> create(const char* path) noexcept;

  explicit FileSink(int fd) noexcept : fd_(fd) {}  ///< takes ownership of an empty regular file
  ~FileSink() override;
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  [[nodiscard]] Status append(Bytes a, Bytes b) noexcept override;
  [[nodiscard]] uint64_t size() const noexcept override { return size_; }

 private:
  int fd_;
  uint64_t size_ = 0;
};

}  // namespace convtrace::format
