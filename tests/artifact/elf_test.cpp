#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/artifact/artifacts.h"
#include "tests/support/catch.h"

namespace convtrace::test {
namespace {

using Names = std::set<std::string>;

std::vector<std::vector<std::string>> output_words(const std::vector<std::string>& command) {
  const ProcessResult result = run_process(command);
  REQUIRE(result.exit_code == 0);
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(result.out);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::string>(words),
                       std::istream_iterator<std::string>());
  }
  return lines;
}

Names exported_symbols(const std::string& library) {
  Names names;
  for (const auto& words : output_words({"nm", "-D", "--defined-only", library})) {
    if (words.size() == 3 && words[1] != "A") names.insert(words[2]);  // A: the version node
  }
  return names;
}

Names needed_libraries(const std::string& library) {
  Names names;
  for (const auto& words : output_words({"readelf", "-dW", library})) {
    if (words.size() > 1 && words[1] == "(NEEDED)")
      names.insert(words.back().substr(1, words.back().size() - 2));
  }
  return names;
}

/// "2.14": the newest GLIBC_ version that any undefined symbol asks for.
std::string glibc_floor(const std::string& library) {
  int major = 0, minor = 0;
  for (const auto& words : output_words({"nm", "-D", "--undefined-only", library})) {
    const auto at = words.back().find("@GLIBC_");
    int a = 0, b = 0;
    if (at == std::string::npos) continue;
    if (sscanf(words.back().c_str() + at, "@GLIBC_%d.%d", &a, &b) != 2) continue;
    if (std::pair(a, b) > std::pair(major, minor)) major = a, minor = b;
  }
  return std::to_string(major) + "." + std::to_string(minor);
}

size_t constructor_count(const std::string& library) {
  for (const auto& words : output_words({"readelf", "-dW", library})) {
    if (words.size() > 2 && words[1] == "(INIT_ARRAYSZ)") return std::stoul(words[2]) / 8;
  }
  return 0;
}

}  // namespace

TEST_CASE("artifact: the preload library exports exactly its hooks", "[artifact]") {
  Names names{"_ZN3c1022memoryProfilingEnabledEv",
              "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE",
              "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
              "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
              "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
              "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv",
              "_ZN3c108free_cpuEPv",
              "convtrace_cpu_alloc_v1",
              "convtrace_explained_v1",
              "convtrace_hooks_v1",
              "convtrace_quarantine_v1",
              "convtrace_start_folder_v1",
              "cuptiSubscribe",
              "cuptiSubscribe_v2",
              "dlsym"};
#define GATED(name) names.insert(#name);
#include "interposer/preload/gated.def"
#define NCCL(name, ...) names.insert(#name);
#include "interposer/preload/nccl.def"
  CHECK(exported_symbols(kStub) == names);
}

TEST_CASE("artifact: the preload library needs libc alone, of any age", "[artifact]") {
  CHECK(needed_libraries(kStub) == Names{"libc.so.6"});
  WARN("glibc floor of libconvtrace.so: " << glibc_floor(kStub));
  CHECK(glibc_floor(kStub) == "2.14");
}

TEST_CASE("artifact: the preload library has one constructor of its own", "[artifact]") {
  CHECK(constructor_count(kStub) == 2);  // frame_dummy of the compiler's start files, and ours
}

TEST_CASE("artifact: the engine exports exactly what exports.map lists", "[artifact]") {
  CHECK(exported_symbols(kCore) ==
        Names{"InitializeInjection@@CONVTRACE_1", "convtrace_intern@@CONVTRACE_1",
              "convtrace_scope_slot@@CONVTRACE_1", "convtrace_setting@@CONVTRACE_1",
              "convtrace_finish@@CONVTRACE_1", "convtrace_python@@CONVTRACE_1",
              "convtrace_start@@CONVTRACE_1", "convtrace_submit@@CONVTRACE_1"});
}

TEST_CASE("artifact: the engine brings its own C++ library and needs no CUDA", "[artifact]") {
  CHECK(needed_libraries(kCore) == Names{"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"});
  WARN("glibc floor of libconvtrace-core.so: " << glibc_floor(kCore));
  CHECK(glibc_floor(kCore) == "2.35");  // _dl_find_object of the static libgcc
}

TEST_CASE("artifact: the programs bring their own C++ library", "[artifact]") {
  for (const char* name : {"/bin/convtrace", "/bin/convtrace-diff"}) {
    CAPTURE(name);
    CHECK(needed_libraries(kBuild + name) ==
          Names{"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"});
    CHECK(glibc_floor(kBuild + name) == "2.35");
  }
}

TEST_CASE("artifact: the engine has no constructor of its own", "[artifact]") {
  // The compiler's start files (2) and the static libstdc++ (8: exception pool, locales, errors,
  // and the memory resource that std::from_chars of a double brings; strtod would follow the
  // locale).
  CHECK(constructor_count(kCore) == 10);
}

}  // namespace convtrace::test
