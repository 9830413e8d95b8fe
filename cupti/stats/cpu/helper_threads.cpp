#include "cupti/stats/cpu/helper_threads.h"

#include <algorithm>

#include "cupti/stats/cpu/host_fp.h"
#include "format/base/background_thread.h"

namespace convtrace::stats {

HelperThreads::HelperThreads(uint32_t count) : wanted_(std::min(count, kMost)) {}

HelperThreads::~HelperThreads() { end(); }

/// None is inside a loop, so that each ends at once.
void HelperThreads::end() noexcept {
  stopping_.store(true);
  calls_.fetch_add(1);
  calls_.notify_all();
  for (uint32_t i = 0; i < started_; ++i) pthread_join(threads_[i], nullptr);
  started_.store(0);
}

void HelperThreads::rest() noexcept {
  if (taken_.exchange(true, std::memory_order_acquire)) return;
  end();
  stopping_.store(false);
  taken_.store(false, std::memory_order_release);
}

void HelperThreads::start() noexcept {
  while (started_ < wanted_ &&
         start_background_thread(threads_[started_], &HelperThreads::main, this)) {
    ++started_;
  }
}

void* HelperThreads::main(void* self) noexcept {
  pthread_setname_np(pthread_self(), "convtrace-cpu");
  static_cast<HelperThreads*>(self)->help();
  return nullptr;
}

void HelperThreads::share(const Loop& loop) noexcept {
  if (wanted_ == 0 || loop.turns < 2 || taken_.exchange(true, std::memory_order_acquire)) {
    for (uint32_t turn = 0; turn < loop.turns; ++turn) loop.call(loop.work, turn);
    return;
  }
  if (started_ < wanted_) start();
  loop_ = loop;
  next_.store(0, std::memory_order_relaxed);
  open_.store(true);
  calls_.fetch_add(1);
  calls_.notify_all();
  take_turns();
  // A helper says that it is active before it looks whether the loop is open: either it sees that
  // it is not, or it is seen here.
  open_.store(false);
  for (uint32_t active = active_.load(); active != 0; active = active_.load()) active_.wait(active);
  taken_.store(false, std::memory_order_release);
}

void HelperThreads::take_turns() noexcept {
  for (uint32_t turn = next_.fetch_add(1); turn < loop_.turns; turn = next_.fetch_add(1))
    loop_.call(loop_.work, turn);
}

void HelperThreads::help() noexcept {
  const DefaultFloatingPoint scope;  // a new thread inherits the modes of the one that starts it
  uint32_t seen = 0;
  while (true) {
    calls_.wait(seen);
    seen = calls_.load();
    if (stopping_.load()) return;
    active_.fetch_add(1);
    if (open_.load()) take_turns();
    if (active_.fetch_sub(1) == 1) active_.notify_one();
  }
}

}  // namespace convtrace::stats
