#pragma once
/// @file guarded_file.h
/// A file that convtrace keeps open inside a host program.
///
/// The program may close any descriptor, by mistake (a double close) or on purpose (closerange,
/// daemons), and its next file gets the number. So descriptor() proves before each use that the
/// number still is this file: by device and inode, and for a regular file by the offset, to which
/// this class gives a random value that its writes leave alone. Inodes are used again, and the
/// program may open the same file itself, but no other open file has that offset. If the number is
/// lost, the file is opened again by its path where that still is the same file; otherwise it is
/// lost for good. A number that is not this file is never closed.
///
/// Number:   the highest sixteenth of those below 256, or below RLIMIT_NOFILE if that is lower:
///           above what most programs reach, so that they get the numbers that they get without
///           convtrace. The kernel's table holds 64 numbers at first, then 256; growing it takes it
///           15 ms in a process with threads, once, in which opens of other threads wait.
/// Writes:   with pwrite and pwritev, which do not move the offset; of a file in append mode
///           pwrite appends.
/// Fork:     a child shares the open file and its offset, so the proof holds there too.
/// Threads:  descriptor() from any, without a lock or an allocation.
/// Errors:   -1. Between the proof and the system call that follows, another thread of the program
///           may close the number and open a file with it: a microsecond, if the thread keeps its
///           processor. file_thread.h has no such gap.
/// Source:   open(2) "Open file descriptions", pwrite(2) BUGS, fcntl(2) F_DUPFD_CLOEXEC.

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace convtrace {

class GuardedFile {
 public:
  /// @param fd      just opened; belongs to this object from here on. -1, or not the file that the
  ///                path leads to: lost from the start.
  /// @param path    under which a lost file is looked for; absolute, as the program may change its
  ///                folder. Empty: nowhere.
  /// @param locked  a file that is opened again gets a shared flock() again.
  GuardedFile(int fd, std::string path, bool locked) noexcept;
  ~GuardedFile();
  GuardedFile(const GuardedFile&) = delete;
  GuardedFile& operator=(const GuardedFile&) = delete;

  /// @return the number, which is this file at this moment; -1: lost.
  [[nodiscard]] int descriptor() noexcept;

  /// Appends to a file that was opened with O_APPEND, or to a pipe or terminal, in one write.
  /// @return false if the file is lost.
  bool append(const char* text, size_t bytes) noexcept;

  /// The file was renamed. No other thread may use the object meanwhile.
  void set_path(std::string path) noexcept { path_ = std::move(path); }

  /// Removes the file's name, if it still has it.
  void unlink() const noexcept;

 private:
  /// Identifies a file independently of its name.
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;        ///< 0: no file
    uint64_t birth_ns = 0;  ///< 0: the file system does not say it
    static Identity of(int fd) noexcept;
    /// As of(fd), if the path leads to the same file.
    static Identity of(int fd, const std::string& path) noexcept;
    bool operator==(const Identity&) const = default;
    [[nodiscard]] bool has(const struct stat& status) const noexcept {
      return status.st_dev == device && status.st_ino == inode;
    }
  };

  [[nodiscard]] bool is_this(int fd) const noexcept;
  [[nodiscard]] int move_up(int fd) const noexcept;
  [[nodiscard]] int open_again() const noexcept;

  std::string path_;
  const bool locked_;
  const Identity identity_;
  int flags_ = 0;      ///< flags of open(), with which open_again() opens it
  off_t offset_ = -1;  ///< -1: a pipe or terminal, which has none
  std::atomic<int> number_{-1};
};

/// During its lifetime writes of the calling thread raise no signal in the host, also those to its
/// stderr. Beyond RLIMIT_FSIZE, and into a pipe without a reader, the kernel sends SIGXFSZ or SIGPIPE to
/// the writing thread, which kills the process by default: both are blocked, and those that a write
/// raised are removed, so that it only fails with EFBIG or EPIPE. A signal that was pending before
/// belongs to the host and stays. Source: setrlimit(2), write(2), signal(7).
class QuietWrites {
 public:
  QuietWrites() noexcept {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    sigset_t raised;
    sigemptyset(&raised);
    sigemptyset(&ours_);
    for (const int number : {SIGXFSZ, SIGPIPE}) {
      sigaddset(&raised, number);
      if (sigismember(&pending, number) == 0) sigaddset(&ours_, number);
    }
    pthread_sigmask(SIG_BLOCK, &raised, &old_mask_);
  }
  ~QuietWrites() {
    const int saved_errno = errno;
    const timespec now{};
    int removed = 0;
    do {
      removed = sigtimedwait(&ours_, nullptr, &now);
    } while (removed > 0 || errno == EINTR);
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    errno = saved_errno;
  }
  QuietWrites(const QuietWrites&) = delete;
  QuietWrites& operator=(const QuietWrites&) = delete;

 private:
  sigset_t ours_;  ///< that were not pending before
  sigset_t old_mask_;
};

}  // namespace convtrace
