#include "interposer/core/memory/unwinder.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "interposer/core/memory/libunwind.h"

namespace convtrace::engine {
namespace {

std::atomic<Backtrace> g_backtrace{nullptr};
std::atomic<const char*> g_source{"none"};
pthread_once_t g_once = PTHREAD_ONCE_INIT;

void choose() {
  const Backtrace walk = open_libunwind();
  g_source.store(walk != nullptr ? "libunwind" : "backtrace()", std::memory_order_relaxed);
  g_backtrace.store(walk != nullptr ? walk : &backtrace, std::memory_order_release);
}

const char* base_name(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

}  // namespace

void capture_stack(RawStack& stack) noexcept {
  Backtrace walk = g_backtrace.load(std::memory_order_acquire);
  if (walk == nullptr) {
    pthread_once(&g_once, choose);
    walk = g_backtrace.load(std::memory_order_acquire);
  }
  const int found = walk(stack.frames, static_cast<int>(kMaxRawFrames));
  const size_t native = found > 0 ? static_cast<size_t>(found) : 0;
  stack.count = static_cast<uint32_t>(add_python_frames(stack.frames, native));
}

std::span<void* const> without_own_frames(std::span<void* const> frames) noexcept {
  constexpr std::string_view kOurs = "libconvtrace";
  size_t own = 0;
  Dl_info info{};
  while (own < frames.size() && dladdr(frames[own], &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(base_name(info.dli_fname)).starts_with(kOurs)) {
    ++own;
  }
  return frames.subspan(own);
}

const char* stack_source() noexcept { return g_source.load(std::memory_order_relaxed); }

}  // namespace convtrace::engine
