#pragma once
/// @file file_sink.h
/// A Sink that is one new file, written from inside somebody else's program.
///
/// Place:    opened by the engine's writer thread; owned by a TraceWriter.
/// Threads:  one owner thread.
/// Errors:   a failed append cuts the file back to where it was, so the file always ends at a
///           record.
/// Signals:  beyond RLIMIT_FSIZE the kernel sends SIGXFSZ to the writing thread, whose default
///           action kills the process. append() blocks that signal in the calling thread for the
///           duration of the write and takes away the one the write raised, so the host sees
///           nothing and the caller kNoSpace.
/// Source:   setrlimit(2), write(2), signal(7).

#include <memory>

#include "format/base/bytes.h"
#include "format/file/sink.h"

namespace convtrace::format {

class FileSink final : public Sink {
 public:
  /// Creates `path`, mode 0600 (a trace holds data and command lines), never following or replacing
  /// what is there already.
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
