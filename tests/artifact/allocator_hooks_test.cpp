#include <dlfcn.h>

#include <atomic>
#include <cstdint>

#include "cupti/abi/hooks_v1.h"
#include "tests/support/catch.h"

// Runs under LD_PRELOAD=libconvtrace.so CONVTRACE_CPU_ALLOC=on (set by ctest).
namespace {

struct Seen {
  int calls;
  void* pointer;
  int64_t bytes;
  int type;
};
Seen g_told{};

void memory_report(void* pointer, int64_t bytes, uint64_t device) {
  g_told = {g_told.calls + 1, pointer, bytes, static_cast<int>(device & 0xFF)};
}

}  // namespace

TEST_CASE("allocator hooks: every spelling reaches the engine and libc10", "[artifact]") {
  // As Python loads torch: outside the global scope, so that RTLD_NEXT would find nothing.
  void* c10 = dlopen(PROGRAMS "/libc10.so", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(c10 != nullptr);
  auto* report = reinterpret_cast<void (*)(int, void*, int64_t, int)>(dlsym(c10, "double_report"));
  auto* seen = reinterpret_cast<Seen (*)()>(dlsym(c10, "double_seen"));
  auto* enabled = reinterpret_cast<bool (*)()>(dlsym(c10, "double_profiling_enabled"));
  auto* slot = reinterpret_cast<std::atomic<const convtrace_hooks_v1*>*>(
      dlsym(RTLD_DEFAULT, "convtrace_hooks_v1"));
  REQUIRE(slot != nullptr);

  report(2, &g_told, 64, 1);  // no engine yet
  CHECK(seen().calls == 1);

  static convtrace_hooks_v1 hooks{};
  hooks.bytes = sizeof hooks;
  hooks.memory_report = memory_report;
  slot->store(&hooks);
  for (int spelling = 0; spelling < 3; ++spelling) {
    CAPTURE(spelling);
    int block = 0;
    report(spelling, &block, -512 - spelling, 1);
    for (const Seen& s : {g_told, seen()}) {
      CHECK(s.pointer == &block);
      CHECK(s.bytes == -512 - spelling);
      CHECK(s.type == 1);
    }
  }
  CHECK(g_told.calls == 3);
  CHECK(seen().calls == 4);
  CHECK(enabled());  // libc10's own answer is no
}
