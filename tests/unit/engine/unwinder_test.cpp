#include "interposer/engine/unwinder.h"

#include <dlfcn.h>

#include "tests/support/catch.h"

using namespace convtrace::engine;

namespace {

[[gnu::noinline]] void capture_here(RawStack& stack) {
  capture_stack(stack, 0);
  asm volatile("" ::: "memory");  // no tail call: this frame must be on the stack
}

}  // namespace

TEST_CASE("unwinder: a stack holds its caller, innermost first", "[engine][unwinder]") {
  RawStack stack;
  capture_here(stack);
  REQUIRE(stack.count >= 3);
  const auto function = reinterpret_cast<uintptr_t>(&capture_here);
  bool found = false;
  for (uint32_t i = 0; i < 3; ++i) {
    const auto frame = reinterpret_cast<uintptr_t>(stack.frames[i]);
    found = found || (frame > function && frame < function + 4096);
  }
  CHECK(found);
  CHECK(std::string(stack_source()) != "none");
}

TEST_CASE("unwinder: skipping drops the innermost frames and nothing else", "[engine][unwinder]") {
  RawStack all, fewer;
  for (int i = 0; i < 2; ++i) capture_stack(i == 0 ? all : fewer, i == 0 ? 0 : 2);
  REQUIRE(all.count > 2);
  REQUIRE(fewer.count == all.count - 2);
  CHECK(fewer.frames[fewer.count - 1] == all.frames[all.count - 1]);
  RawStack none;
  capture_stack(none, 1000);
  CHECK(none.count == 0);
}

TEST_CASE("unwinder: frames are described by function and library", "[engine][unwinder]") {
  void* const function = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
  REQUIRE(function != nullptr);
  const std::string text = describe_frame(static_cast<char*>(function) + 4);
  CHECK(text.find("gnu_get_libc_version+0x4") == 0);
  CHECK(text.find("(libc.so.6)") != std::string::npos);
  CHECK(describe_frame(nullptr).find("0x") == 0);
}
