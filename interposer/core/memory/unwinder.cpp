#include "interposer/core/memory/unwinder.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <string_view>

namespace convtrace::engine {
namespace {

using Backtrace = int (*)(void** frames, int size);
std::atomic<Backtrace> g_backtrace{nullptr};
std::atomic<const char*> g_source{"none"};
pthread_once_t g_once = PTHREAD_ONCE_INIT;

/// Opens the copy of libunwind that is installed beside the engine.
void* open_beside_us() {
  Dl_info us{};
  if (dladdr(reinterpret_cast<void*>(&capture_stack), &us) == 0 || us.dli_fname == nullptr) {
    return nullptr;
  }
  std::string path = us.dli_fname;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return nullptr;
  path.resize(slash + 1);
  path += "libunwind.so.8";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

void choose() {
  void* library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = open_beside_us();
  void* const symbol = library != nullptr ? dlsym(library, "unw_backtrace") : nullptr;
  g_source.store(symbol != nullptr ? "libunwind" : "backtrace()", std::memory_order_relaxed);
  g_backtrace.store(symbol != nullptr ? reinterpret_cast<Backtrace>(symbol) : &backtrace,
                    std::memory_order_release);
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
  stack.count = found > 0 ? static_cast<uint32_t>(found) : 0;
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
