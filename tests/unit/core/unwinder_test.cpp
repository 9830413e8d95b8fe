#include "interposer/core/memory/unwinder.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <thread>

#include "interposer/core/memory/readable.h"
#include "tests/support/catch.h"

using namespace convtrace::engine;

namespace {

[[gnu::noinline]] void capture_here(RawStack& stack) {
  capture_stack(stack);
  asm volatile("" ::: "memory");  // no tail call: this frame must be on the stack
}

/// What this process has open.
std::set<std::string> descriptors() {
  std::set<std::string> open;
  std::error_code gone;  // that of the folder itself
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  return open;
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
  CHECK(std::string(stack_source()) == "libunwind");
}

TEST_CASE("unwinder: no descriptor stays in the process", "[engine][unwinder]") {
  const std::set<std::string> before = descriptors();
  RawStack here, there;
  capture_here(here);
  std::thread([&there] { capture_here(there); }).join();
  CHECK(here.count >= 3);
  CHECK(there.count >= 3);
  CHECK(descriptors() == before);
}

TEST_CASE("unwinder: whether an address can be read is told without a descriptor",
          "[engine][unwinder]") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const pages =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(mprotect(pages + page, page, PROT_NONE) == 0);
  errno = 42;
  CHECK(is_readable(pages + page - 1));
  CHECK_FALSE(is_readable(pages + page));
  CHECK_FALSE(is_readable(nullptr));
  CHECK(errno == 42);
  munmap(pages, 2 * page);
}

TEST_CASE("unwinder: frames of other libraries are kept", "[engine][unwinder]") {
  RawStack stack;
  capture_here(stack);
  CHECK(without_own_frames(stack.span()).size() == stack.count);
  CHECK(without_own_frames({}).empty());
}

TEST_CASE("unwinder: exceptions still go through the compiler's own unwinder",
          "[engine][unwinder]") {
  struct Cleanup {
    int& count;
    ~Cleanup() { ++count; }
  };
  RawStack stack;
  capture_here(stack);
  int cleanups = 0;
  const std::function<void(int)> deep = [&](int depth) {
    const Cleanup cleanup{cleanups};
    if (depth == 0) throw std::runtime_error("caught");
    deep(depth - 1);
  };
  CHECK_THROWS_WITH(deep(5), "caught");
  CHECK(cleanups == 6);
  // libunwind has functions of these names, too; a sanitizer stands before libgcc's.
  for (const char* name : {"_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_Backtrace"}) {
    Dl_info from{};
    REQUIRE(dladdr(dlsym(RTLD_DEFAULT, name), &from) != 0);
    CHECK_THAT(from.dli_fname, !Catch::Contains("libunwind"));
  }
}
