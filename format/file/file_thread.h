#pragma once
/// @file file_thread.h
/// A file inside a host program, written by a thread that has no other descriptor.
///
/// A proof that a number is still the file (guarded_file.h) is old when the write begins: a thread
/// that loses its processor in between gives the program milliseconds to close the number and to
/// open a file with it. So the thread leaves the table of descriptors that the program's threads
/// share, proves the number in its copy, closes the others there, and nothing that the program does
/// reaches it any more. Where that is refused (a sandbox), it proves before each write in the
/// program's table.
///
/// Threads:  one owner, which waits for each piece of work.
/// Errors:   without a thread the work is done by the caller, in the program's table.
/// Source:   unshare(2) CLONE_FILES, close_range(2). Record locks of the program belong to its table,
///           so that what is closed in another one does not release them (fcntl(2), fs/locks.c).

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "format/base/guarded_file.h"

namespace convtrace::format {

class FileThread {
 public:
  /// kShared: no thread, for programs of our own.
  enum class Table : uint8_t { kPrivate, kShared };

  /// @param fd, path  as for GuardedFile.
  FileThread(int fd, std::string path, Table table) noexcept
      : file_(fd, std::move(path), true), wants_thread_(table == Table::kPrivate) {}
  ~FileThread() { rest(); }
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  /// Calls `work(file)` on the thread, which the first call starts, and waits for it. The descriptor
  /// of the file is that of the thread.
  template <typename Work>
  void run(Work& work) noexcept {
    perform([](void* object, GuardedFile& file) { (*static_cast<Work*>(object))(file); }, &work);
  }

  /// Ends the thread; the file stays open.
  void rest() noexcept;
  /// @return at least the number of such threads that the process has at this moment.
  [[nodiscard]] static uint32_t alive() noexcept { return alive_.load(); }

  /// Between two calls of run().
  void set_path(std::string path) noexcept { file_.set_path(std::move(path)); }
  void unlink() const noexcept { file_.unlink(); }

 private:
  using Call = void (*)(void* object, GuardedFile& file);
  enum class Order : uint32_t { kNone, kWork, kEnd };

  static void* main(void* self) noexcept;
  void start() noexcept;
  void perform(Call call, void* object) noexcept;
  void give(Order order) noexcept;

  GuardedFile file_;
  const bool wants_thread_;
  static inline std::atomic<uint32_t> alive_{0};
  bool running_ = false;
  std::atomic<Order> order_{Order::kNone};
  Call call_ = nullptr;
  void* object_ = nullptr;
  pthread_t thread_{};
};

}  // namespace convtrace::format
