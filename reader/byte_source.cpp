#include "reader/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace convtrace::reader {
namespace {

bool in_range(uint64_t size, uint64_t offset, uint64_t count) {
  return offset <= size && count <= size - offset;
}

Status cut_at(uint64_t offset) {
  return Status::make(StatusCode::kTruncated, "read", static_cast<int64_t>(offset));
}

}  // namespace

Result<std::unique_ptr<ByteSource>> FileSource::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its other end.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Status::make(StatusCode::kIoError, "open", errno);
  struct stat info {};
  int error = fstat(fd, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISDIR(info.st_mode)) error = EISDIR;
  if (error == 0 && !S_ISREG(info.st_mode)) error = ESPIPE;
  if (error != 0) {
    ::close(fd);
    return Status::make(StatusCode::kIoError, "open", error);
  }
  return std::unique_ptr<ByteSource>(
      std::make_unique<FileSource>(fd, static_cast<uint64_t>(info.st_size)));
}

FileSource::~FileSource() { ::close(fd_); }

void FileSource::refresh() noexcept {
  struct stat info {};
  if (fstat(fd_, &info) == 0) size_ = static_cast<uint64_t>(info.st_size);
}

Status FileSource::read(uint64_t offset, std::span<std::byte> to) const noexcept {
  if (!in_range(size_, offset, to.size())) return cut_at(offset);
  while (!to.empty()) {
    const ssize_t count = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::make(StatusCode::kIoError, "read", errno);
    if (count == 0) return cut_at(offset);
    to = to.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return kOkStatus;
}

Status MemorySource::read(uint64_t offset, std::span<std::byte> to) const noexcept {
  if (!in_range(bytes_.size(), offset, to.size())) return cut_at(offset);
  if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
  return kOkStatus;
}

}  // namespace convtrace::reader
