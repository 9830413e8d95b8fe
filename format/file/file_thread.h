#pragma once
/// @file file_thread.h
/// A file inside a host program, opened and written by a thread that has no other descriptor.
///
/// A proof that a number is still the file (guarded_file.h) is old when the write begins: a thread
/// that loses its processor in between gives the program milliseconds to close the number and to
/// open a file with it. And a number that is open for a moment is one that the program does not get
/// then: after close(0) its next file has to be 0. So the thread leaves the table of descriptors
/// that the program's threads share, closes all in its copy, and opens the file there: neither
/// reaches the other. Where that is refused (a sandbox), it opens the file in the program's table,
/// and proves before each write.
///
/// Threads:  one owner, which waits for each piece of work.
/// Errors:   without a thread the work is done by the caller, in the program's table.
/// Source:   unshare(2) CLONE_FILES, close_range(2). Record locks of the program belong to its table,
///           so that a close in another table does not release them (fcntl(2), fs/locks.c).

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "format/base/guarded_file.h"

namespace convtrace::format {

class FileThread {
 public:
  /// kShared: no thread, for programs of our own.
  enum class Table : uint8_t { kPrivate, kShared };

  explicit FileThread(Table table) noexcept : wants_thread_(table == Table::kPrivate) {}
  ~FileThread() { end(); }
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  /// Calls `work()` on the thread, which the first call starts, and waits for it. Descriptors are
  /// those of the thread.
  /// @throws what `work` throws.
  template <typename Work>
  void run(Work&& work) {
    std::exception_ptr thrown;
    auto call = [&]() noexcept {
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    perform([](void* object) { (*static_cast<decltype(call)*>(object))(); }, &call);
    if (thrown) std::rethrow_exception(thrown);
  }

  /// Once: inside run(), or without a thread.
  /// @param fd, path  as for GuardedFile.
  void hold(int fd, std::string path) noexcept { file_.emplace(fd, std::move(path), true); }
  /// Where hold() may be called, after it.
  [[nodiscard]] GuardedFile& file() noexcept { return *file_; }

  /// Ends the thread while the program has no other one. The file, and its lock, stay open in the
  /// program's table, out of which the next thread takes it. If the file cannot be opened there (out
  /// of reach after a chroot), the thread stays.
  void rest() noexcept;
  /// @return at least the number of such threads that the process has at this moment.
  [[nodiscard]] static uint32_t alive() noexcept { return alive_.load(); }

  /// Between two calls of run().
  void set_path(std::string path) noexcept { file_->set_path(std::move(path)); }

 private:
  using Call = void (*)(void* object);
  enum class Order : uint32_t { kNone, kWork, kEnd };

  static void* main(void* self) noexcept;
  void start() noexcept;
  void perform(Call call, void* object) noexcept;
  void give(Order order) noexcept;
  void end() noexcept;

  std::optional<GuardedFile> file_;
  const bool wants_thread_;
  static inline std::atomic<uint32_t> alive_{0};
  bool running_ = false;
  std::atomic<Order> order_{Order::kNone};
  Call call_ = nullptr;
  void* object_ = nullptr;
  pthread_t thread_{};
};

}  // namespace convtrace::format
