#include "cupti/driver/elf_symbols.h"

#include <dlfcn.h>

#include <string>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

TEST_CASE("elf_symbols: a library's own function is found whoever interposes it", "[elf_symbols]") {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(libc != nullptr);
  for (const char* name : {"getenv", "malloc", "qsort", "snprintf"}) {
    void* found = find_own_symbol(libc, name);
    REQUIRE(found != nullptr);
    Dl_info info{};
    REQUIRE(dladdr(found, &info) != 0);
    CHECK(std::string(info.dli_fname).find("libc.so.6") != std::string::npos);
  }
}

TEST_CASE("elf_symbols: what a library only imports or lacks is not found", "[elf_symbols]") {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  CHECK(find_own_symbol(libc, "convtrace_no_such_function") == nullptr);
  CHECK(find_own_symbol(libc, "") == nullptr);
  CHECK(find_own_symbol(libc, "__tls_get_addr") == nullptr);  // of the loader, imported by libc
  CHECK(find_own_symbol(nullptr, "getenv") == nullptr);
}

TEST_CASE("elf_symbols: the loader's path of a library is told", "[elf_symbols]") {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  CHECK(std::string(library_path(libc)).find("libc.so.6") != std::string::npos);
  CHECK(std::string(library_path(nullptr)).empty());
}

}  // namespace
}  // namespace convtrace::cupti
