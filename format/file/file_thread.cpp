#include "format/file/file_thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "format/base/background_thread.h"

namespace convtrace::format {
namespace {

#ifdef SYS_close_range
constexpr long kCloseRange = SYS_close_range;
#else
constexpr long kCloseRange = 436;
#endif
constexpr unsigned kUnshare = 2;  // CLOSE_RANGE_UNSHARE

/// Docker refuses unshare(), and kernels before 5.9 have no close_range(), which with this flag does
/// the same.
bool leave_table() noexcept {
  return syscall(kCloseRange, ~0U, ~0U, kUnshare) == 0 || unshare(CLONE_FILES) == 0;
}

/// The program's pipes and sockets must not stay open in this table.
void close_others(int kept) noexcept {
  const unsigned below = static_cast<unsigned>(std::max(kept, 0));
  const unsigned above = static_cast<unsigned>(kept + 1);
  const bool closed = syscall(kCloseRange, above, ~0U, 0U) == 0;
  if (closed && (kept <= 0 || syscall(kCloseRange, 0U, below - 1, 0U) == 0)) return;
  rlimit limit{};
  constexpr rlim_t kMost = 65536;
  getrlimit(RLIMIT_NOFILE, &limit);
  for (int fd = 0; fd < static_cast<int>(std::min(limit.rlim_cur, kMost)); ++fd) {
    if (fd != kept) close(fd);
  }
}

}  // namespace

void* FileThread::main(void* self) noexcept {
  auto* const thread = static_cast<FileThread*>(self);
  pthread_setname_np(pthread_self(), "convtrace-file");
  if (leave_table()) close_others(thread->file_ ? thread->file_->descriptor() : -1);
  thread->give(Order::kNone);
  while (true) {
    thread->order_.wait(Order::kNone);
    if (thread->order_.load(std::memory_order_acquire) == Order::kEnd) return nullptr;
    thread->call_(thread->object_);
    thread->give(Order::kNone);
  }
}

void FileThread::give(Order order) noexcept {
  order_.store(order, std::memory_order_release);
  order_.notify_one();
}

void FileThread::start() noexcept {
  alive_.fetch_add(1);
  order_.store(Order::kWork);  // to leave the program's table
  running_ = start_background_thread(thread_, &FileThread::main, this);
  if (running_) order_.wait(Order::kWork);
  if (!running_) alive_.fetch_sub(1);
}

void FileThread::perform(Call call, void* object) noexcept {
  if (wants_thread_ && !running_) start();
  if (!running_) {
    const QuietWrites quiet;
    return call(object);
  }
  call_ = call;
  object_ = object;
  give(Order::kWork);
  order_.wait(Order::kWork);
}

void FileThread::rest() noexcept {
  if (running_ && (!file_ || file_->descriptor() >= 0)) end();
}

void FileThread::end() noexcept {
  if (!running_) return;
  give(Order::kEnd);
  pthread_join(thread_, nullptr);
  running_ = false;
  alive_.fetch_sub(1);
}

}  // namespace convtrace::format
