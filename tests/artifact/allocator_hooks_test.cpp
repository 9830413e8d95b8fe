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

/// From now on memory_report() is the engine's hook.
void tell_us() {
  static convtrace_hooks_v1 hooks{};
  hooks.bytes = sizeof hooks;
  hooks.memory_report = memory_report;
  auto* slot = reinterpret_cast<std::atomic<const convtrace_hooks_v1*>*>(
      dlsym(RTLD_DEFAULT, CONVTRACE_HOOKS_SYMBOL));
  REQUIRE(slot != nullptr);
  slot->store(&hooks);
}

}  // namespace

TEST_CASE("allocator hooks: blocks of CPU tensors reach the engine, and c10's table a profiler's",
          "[artifact]") {
  void* c10 = dlopen(PROGRAMS "/libc10.so", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(c10 != nullptr);
  auto* make = reinterpret_cast<void (*)(void*, size_t)>(dlsym(c10, "double_new"));
  auto* drop = reinterpret_cast<void (*)(void*)>(dlsym(c10, "double_delete"));
  auto* known = reinterpret_cast<int (*)()>(dlsym(c10, "double_known_blocks"));
  auto* seen = reinterpret_cast<Seen (*)()>(dlsym(c10, "double_seen"));
  auto* run_profiler = reinterpret_cast<void (*)(bool)>(dlsym(c10, "double_run_profiler"));
  auto* watched = static_cast<std::atomic<int>*>(dlsym(RTLD_DEFAULT, CONVTRACE_CPU_ALLOC_SYMBOL));
  REQUIRE(watched != nullptr);
  tell_us();
  const int calls = seen().calls;

  int block = 0;
  g_told = {};
  make(&block, 64);
  CHECK(g_told.calls == 1);
  CHECK(g_told.pointer == &block);
  CHECK(g_told.bytes == 64);
  CHECK(g_told.type == 0);
  drop(&block);
  CHECK(g_told.calls == 2);
  CHECK(g_told.pointer == &block);
  CHECK(g_told.bytes < 0);
  CHECK(seen().calls == calls);  // c10 keeps no table for us
  CHECK(known() == 0);

  run_profiler(true);
  make(&block, 64);
  CHECK(g_told.calls == 3);  // once
  CHECK(seen().calls == calls + 1);
  CHECK(known() == 1);
  drop(&block);
  CHECK(g_told.calls == 4);
  CHECK(seen().calls == calls + 2);
  CHECK(known() == 0);
  run_profiler(false);

  watched->store(0);
  make(&block, 64);
  drop(&block);
  CHECK(g_told.calls == 4);
  CHECK(seen().calls == calls + 2);
  watched->store(1);
}

TEST_CASE("allocator hooks: every spelling reaches the engine and libc10", "[artifact]") {
  // As Python loads torch: outside the global scope, so that RTLD_NEXT would find nothing.
  void* c10 = dlopen(PROGRAMS "/libc10.so", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(c10 != nullptr);
  auto* report = reinterpret_cast<void (*)(int, void*, int64_t, int)>(dlsym(c10, "double_report"));
  auto* seen = reinterpret_cast<Seen (*)()>(dlsym(c10, "double_seen"));
  auto* enabled = reinterpret_cast<bool (*)()>(dlsym(c10, "double_profiling_enabled"));

  const int calls = seen().calls;
  report(2, &g_told, 64, 1);  // no engine yet
  CHECK(seen().calls == calls + 1);

  tell_us();
  g_told = {};
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
  CHECK(seen().calls == calls + 4);
  CHECK(enabled());  // libc10's own answer is no
}
