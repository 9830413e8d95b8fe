#include "format/file/file_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <new>

namespace convtrace::format {
namespace {

Status io_status(const char* site, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status::make(full ? StatusCode::kNoSpace : StatusCode::kIoError, site, error);
}

/// During its lifetime, writes of this thread beyond RLIMIT_FSIZE only fail with EFBIG.
class FileSizeSignalGuard {
 public:
  FileSizeSignalGuard() noexcept {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &old_mask_);
  }
  ~FileSizeSignalGuard() {
    const int saved_errno = errno;
    const timespec now{};
    // A signal that was pending before belongs to the host and stays.
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &now) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    errno = saved_errno;
  }
  FileSizeSignalGuard(const FileSizeSignalGuard&) = delete;
  FileSizeSignalGuard& operator=(const FileSizeSignalGuard&) = delete;

 private:
  sigset_t signal_;
  sigset_t old_mask_;
  bool was_pending_ = false;
};

/// Writes both parts at `offset`. @return 0 or errno.
int write_all(int fd, Bytes a, Bytes b, uint64_t offset) noexcept {
  while (!a.empty() || !b.empty()) {
    // writev only reads through iov_base, whose type lacks const.
    const iovec parts[2] = {{const_cast<std::byte*>(a.data()), a.size()},
                            {const_cast<std::byte*>(b.data()), b.size()}};
    const ssize_t written = pwritev(fd, parts, 2, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
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
  std::unique_ptr<Sink> sink(new (std::nothrow) FileSink(fd));
  if (!sink) {
    ::close(fd);
    return Status::make(StatusCode::kOutOfMemory, "create");
  }
  return sink;
}

FileSink::~FileSink() { ::close(fd_); }

Status FileSink::append(Bytes a, Bytes b) noexcept {
  const FileSizeSignalGuard guard;
  // pwritev, not writev, because a forked child shares the file offset.
  if (const int error = write_all(fd_, a, b, size_); error != 0) {
    [[maybe_unused]] const int cut = ftruncate(fd_, static_cast<off_t>(size_));
    return io_status("append", error);
  }
  size_ += a.size() + b.size();
  return kOkStatus;
}

}  // namespace convtrace::format
