#include "interposer/core/memory/stack_texts.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <filesystem>
#include <map>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace convtrace::engine {
namespace {

struct Scene {
  /// @return the text of the frame that returns to `address`.
  std::string text_of(const void* address) {
    void* const frame = const_cast<void*>(address);
    const format::StackId stack = stacks.intern({&frame, 1});
    REQUIRE(definitions.stack(stack).size() == 1);
    return std::string(definitions.text(definitions.stack(stack)[0]));
  }
  std::map<std::string, std::string> all_facts() {
    const auto all = facts.all();
    return {all.begin(), all.end()};
  }
  format::Definitions definitions;
  FactTable facts;
  StackTexts stacks{definitions, facts};
};

const char* address_of(void* library, const char* function) {
  const void* const address = dlsym(library, function);
  REQUIRE(address != nullptr);
  return static_cast<const char*>(address);
}

TEST_CASE("stack_texts: a frame names function, library and the place in it",
          "[engine][stack_texts]") {
  Scene scene;
  const char* const function = address_of(RTLD_DEFAULT, "gnu_get_libc_version");
  Dl_info info{};
  REQUIRE(dladdr(function, &info) != 0);
  char place[64];
  std::snprintf(place, sizeof place, "(libc.so.6+0x%zx)",
                static_cast<size_t>(function + 4 - static_cast<const char*>(info.dli_fbase)));
  CHECK(scene.text_of(function + 4) == std::string("gnu_get_libc_version+0x4 ") + place);

  const std::string fact = scene.all_facts().at("library.libc.so.6");
  const size_t space = fact.find(' ');
  CHECK(space == 40);  // Debian links with a build id of 20 bytes
  CHECK(fact.find_first_not_of("0123456789abcdef") == space);
  CHECK(std::filesystem::equivalent(fact.substr(space + 1), info.dli_fname));
}

TEST_CASE("stack_texts: a frame of the program itself has the program's path",
          "[engine][stack_texts]") {
  Scene scene;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string name = std::filesystem::path(program).filename();
  CHECK_THAT(scene.text_of(reinterpret_cast<const char*>(&address_of) + 4),
             Catch::Contains(name + "+0x"));
  CHECK_THAT(scene.all_facts().at("library." + name), Catch::EndsWith(' ' + program));
}

TEST_CASE("stack_texts: of two libraries of one file name the second goes by its path",
          "[engine][stack_texts]") {
  const test::TempDir folder;
  Dl_info info{};
  REQUIRE(dladdr(address_of(RTLD_DEFAULT, "cbrt"), &info) != 0);
  const std::string copy = folder / std::filesystem::path(info.dli_fname).filename().c_str();
  std::filesystem::copy_file(info.dli_fname, copy);
  void* const other = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(other != nullptr);
  Scene scene;
  CHECK_THAT(scene.text_of(static_cast<const char*>(info.dli_saddr) + 4),
             Catch::Contains("(libm.so.6+0x"));
  CHECK_THAT(scene.text_of(address_of(other, "cbrt") + 4), Catch::Contains('(' + copy + "+0x"));
  CHECK(scene.all_facts().contains("library." + copy));
  dlclose(other);
}

TEST_CASE("stack_texts: an address in no file is a number", "[engine][stack_texts]") {
  Scene scene;
  CHECK(scene.text_of(reinterpret_cast<const void*>(uintptr_t{0x10})) == "0x10");
  CHECK(scene.all_facts().empty());
  CHECK(!scene.stacks.intern({}));
}

}  // namespace
}  // namespace convtrace::engine
