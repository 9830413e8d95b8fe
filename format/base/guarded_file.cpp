#include "format/base/guarded_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "format/base/clock.h"

namespace convtrace {
namespace {

constexpr rlim_t kNumbers = 256;

/// @return the lowest number that a GuardedFile takes if it is free.
int lowest_number() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t numbers = std::min(limit.rlim_cur, kNumbers);
  return static_cast<int>(numbers - numbers / 16) - 1;
}

/// @return an offset between 1 and 2 GiB, which every file system accepts.
off_t random_offset(const void* salt) noexcept {
  uint64_t random = 0;
  // Early during boot there is no entropy.
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
    random = (now_ns() ^ reinterpret_cast<uintptr_t>(salt)) * 0x9E3779B97F4A7C15;
  return (off_t{1} << 30) + static_cast<off_t>(random >> 34);
}

}  // namespace

GuardedFile::Identity GuardedFile::Identity::of(int fd) noexcept {
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) return {};
  Identity identity{status.st_dev, status.st_ino, 0};
  struct statx more;
  // Some sandboxes refuse statx(), so that it proves nothing by failing.
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 && (more.stx_mask & STATX_BTIME) != 0)
    identity.birth_ns =
        static_cast<uint64_t>(more.stx_btime.tv_sec) * 1'000'000'000 + more.stx_btime.tv_nsec;
  return identity;
}

GuardedFile::Identity GuardedFile::Identity::of(int fd, const std::string& path) noexcept {
  const Identity identity = of(fd);
  struct stat status;
  const bool same = path.empty() || (stat(path.c_str(), &status) == 0 && identity.has(status));
  return same ? identity : Identity{};
}

GuardedFile::GuardedFile(int fd, std::string path, bool locked) noexcept
    : path_(std::move(path)), locked_(locked), identity_(Identity::of(fd, path_)) {
  if (identity_.inode == 0) return;
  flags_ = fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND);
  const off_t wanted = random_offset(this);
  offset_ = lseek(fd, wanted, SEEK_SET) == wanted ? wanted : -1;
  number_.store(move_up(fd), std::memory_order_release);
}

GuardedFile::~GuardedFile() {
  const int number = number_.load(std::memory_order_acquire);
  if (is_this(number)) close(number);
}

bool GuardedFile::is_this(int fd) const noexcept {
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 && identity_.has(status) &&
         (offset_ < 0 || lseek(fd, 0, SEEK_CUR) == offset_);
}

/// @return the number that `fd` has from now on; `fd` itself if no higher one is free.
int GuardedFile::move_up(int fd) const noexcept {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, lowest_number());
  if (high < 0) return fd;
  if (is_this(fd)) close(fd);
  return high;
}

int GuardedFile::open_again() const noexcept {
  struct stat status;
  // Before it is opened: to open a device or a pipe may do something.
  if (path_.empty() || stat(path_.c_str(), &status) != 0 || !identity_.has(status)) return -1;
  const int fd = open(path_.c_str(), flags_ | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  if (Identity::of(fd) != identity_ || (offset_ >= 0 && lseek(fd, offset_, SEEK_SET) != offset_)) {
    close(fd);
    return -1;
  }
  if (locked_) flock(fd, LOCK_SH | LOCK_NB);
  return move_up(fd);
}

int GuardedFile::descriptor() noexcept {
  int number = number_.load(std::memory_order_acquire);
  if (is_this(number)) return number;
  if (identity_.inode == 0) return -1;
  const int saved_errno = errno;
  const int again = open_again();
  errno = saved_errno;
  if (again < 0) return -1;
  if (number_.compare_exchange_strong(number, again, std::memory_order_acq_rel)) return again;
  close(again);  // another thread was quicker
  return is_this(number) ? number : -1;
}

void GuardedFile::unlink() const noexcept {
  struct stat status;
  if (lstat(path_.c_str(), &status) == 0 && identity_.has(status)) ::unlink(path_.c_str());
}

bool GuardedFile::append(const char* text, size_t bytes) noexcept {
  const int fd = descriptor();
  if (fd < 0) return false;
  const ssize_t written = offset_ < 0 ? write(fd, text, bytes) : pwrite(fd, text, bytes, 0);
  (void)written;
  return true;
}

}  // namespace convtrace
