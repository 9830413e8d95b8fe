#pragma once
/// @file byte_source.h
/// Random access to the bytes of a trace: an interface, so that tests can read from memory.
///
/// Threads:  const and stateless: any thread. Only refresh() needs exclusive use.
/// Errors:   Status. Not mmap, since a file that shrinks while it is read must give an error, not
///           SIGBUS.

#include <memory>
#include <string>
#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"

namespace convtrace::reader {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// @return the size at the time of opening or of the last refresh. Reading never goes beyond it,
  /// even if the file grows.
  [[nodiscard]] virtual uint64_t size() const noexcept = 0;

  /// Updates size(), since a trace may be read while it is written.
  virtual void refresh() noexcept {}

  /// Reads to.size() bytes from `offset` on.
  /// @return kTruncated (beyond size(), or the file shrank; detail: offset), kIoError (detail:
  /// errno).
  [[nodiscard]] virtual Status read(uint64_t offset, std::span<std::byte> to) const noexcept = 0;
};

class FileSource final : public ByteSource {
 public:
  /// @return kIoError; detail is errno: EISDIR for a directory, ESPIPE for anything else that is no
  /// regular file.
  [[nodiscard]] static Result<std::unique_ptr<ByteSource>> open(const std::string& path);

  FileSource(int fd, uint64_t size) noexcept : fd_(fd), size_(size) {}  ///< takes ownership of fd
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  [[nodiscard]] uint64_t size() const noexcept override { return size_; }
  void refresh() noexcept override;
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> to) const noexcept override;

 private:
  int fd_;
  uint64_t size_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] uint64_t size() const noexcept override { return bytes_.size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> to) const noexcept override;

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace convtrace::reader
