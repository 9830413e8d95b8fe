#include "format/file/file_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace convtrace::format {
namespace {

Status io_status(const char* site, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status::make(full ? StatusCode::kNoSpace : StatusCode::kIoError, site, error);
}

/// Writes both parts at `offset`. @return 0 or errno; EBADF if the file is lost.
int write_all(GuardedFile& file, Bytes a, Bytes b, uint64_t offset) noexcept {
  constexpr int kMostCloses = 3;
  int closes = 0;
  while (!a.empty() || !b.empty()) {
    const int fd = file.descriptor();
    if (fd < 0) return EBADF;
    // writev only reads through iov_base, whose type lacks const.
    const iovec parts[2] = {{const_cast<std::byte*>(a.data()), a.size()},
                            {const_cast<std::byte*>(b.data()), b.size()}};
    const ssize_t written = pwritev(fd, parts, 2, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      // Closed since it was proven.
      if (errno == EBADF && ++closes <= kMostCloses) continue;
      return errno;
    }
    if (written == 0) return ENOSPC;  // some filesystems report no progress instead of an error
    const size_t count = static_cast<size_t>(written);
    offset += count;
    const size_t of_a = count < a.size() ? count : a.size();
    a = a.subspan(of_a);
    b = b.subspan(count - of_a);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Sink>> FileSink::create(const char* path) noexcept {
  int fd = -1;
  do {
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    if (errno == EEXIST) return Status::make(StatusCode::kAlreadyExists, "create", errno);
    return io_status("create", errno);
  }
  try {
    auto file = std::make_shared<FileThread>(FileThread::Table::kShared);
    file->hold(fd, path);
    fd = -1;
    return std::unique_ptr<Sink>(std::make_unique<FileSink>(std::move(file)));
  } catch (...) {
    if (fd >= 0) ::close(fd);
    return Status::make(StatusCode::kOutOfMemory, "create");
  }
}

Status FileSink::append(Bytes a, Bytes b) noexcept {
  Status status;
  file_->run([&]() noexcept {
    GuardedFile& file = file_->file();
    // pwritev, not writev, because a forked child shares the file offset.
    const int error = write_all(file, a, b, size_);
    if (error == 0) return;
    const int fd = file.descriptor();
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(size_)) != 0) {
      // Its end is not a whole record, which readers pass over.
    }
    status = fd >= 0 ? io_status("append", error) : Status::make(StatusCode::kNotFound, "append");
  });
  if (status.ok()) size_ += a.size() + b.size();
  return status;
}

}  // namespace convtrace::format
