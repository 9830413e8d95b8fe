#include <dlfcn.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

using Frames = std::vector<std::string>;
constexpr auto kLibrary = CONVTRACE_SYMBOLS_LIBRARY;
constexpr auto kName = "libsymbols_library.so";

/// What the library's frame is: asked of the loaded library itself.
struct Recorded {
  std::string place;  ///< "libsymbols_library.so+0x1234"
  int line = 0;
};

Recorded record() {
  using Function = const void* (*)(int*);
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto function = reinterpret_cast<Function>(dlsym(library, "frame_of_hidden_op"));
  REQUIRE(function != nullptr);
  Recorded recorded;
  const char* const address = static_cast<const char*>(function(&recorded.line));
  Dl_info info{};
  REQUIRE(dladdr(address, &info) != 0);
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx",
                static_cast<size_t>(address - static_cast<const char*>(info.dli_fbase)));
  recorded.place = kName + std::string(offset);
  return recorded;
}

std::string build_id() {
  const std::string notes = run_process({"readelf", "-n", kLibrary}).out;
  const std::string title = "Build ID: ";
  const size_t begin = notes.find(title);
  REQUIRE(begin != std::string::npos);
  return notes.substr(begin + title.size(), notes.find('\n', begin) - begin - title.size());
}

struct Found {
  Frames launch;
  std::string err;
};

/// What `convtrace findings` makes of a frame.
Found findings_of(const std::string& frame, const std::string& fact,
                  const ProcessOptions& options = {}) {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path)
      .fact(std::string("library.") + kName, fact)
      .finding({.kind = format::FindingKind::kFreedUnderOutput,
                .level = format::Level::kError,
                .launch_stack = {frame, "forward (train.py:12)"}})
      .close();
  const ProcessResult json = run_process({CONVTRACE_PROGRAM, "findings", "--json", path}, options);
  const ProcessResult text = run_process({CONVTRACE_PROGRAM, "findings", path}, options);
  const Frames frames = json_lines(json.out).at(0)["stacks"]["launch"];
  for (const std::string& each : frames) CHECK_THAT(text.out, Catch::Contains("\n    " + each));
  CHECK(json.err == text.err);
  return {frames, json.err};
}

void check_named(const Frames& frames, const Recorded& recorded) {
  REQUIRE(frames.size() == 3);
  const std::string line = "symbols_library.cpp:" + std::to_string(recorded.line);
  const std::string place = " (" + recorded.place + ')';
  CHECK_THAT(frames[0], Catch::StartsWith("op::inner() at ") && Catch::EndsWith(line + place));
  CHECK_THAT(frames[1], Catch::StartsWith("op::hidden_op() at ") && Catch::EndsWith(place));
  CHECK(frames[2] == "forward (train.py:12)");
}

}  // namespace

TEST_CASE("symbols: hidden and inlined functions have names and lines", "[cli][symbols]") {
  const Recorded recorded = record();
  const Found found = findings_of(recorded.place, build_id() + ' ' + kLibrary);
  check_named(found.launch, recorded);
  CHECK(found.err.empty());
  const Found exported =
      findings_of("f()+0x1c (" + recorded.place + ')', build_id() + ' ' + kLibrary);
  check_named(exported.launch, recorded);
}

TEST_CASE(
    "symbols: convtrace-diff names the frames of the cause, and of errors beside equal values",
    "[cli][symbols]") {
  const Recorded recorded = record();
  const TempDir folder;
  const std::string report = folder / "report.json";
  const auto trace = [&](const char* name, float last, bool faulty) {
    TraceBuilder made(folder / name);
    made.fact(std::string("library.") + kName, build_id() + ' ' + kLibrary).step(0);
    if (faulty) {
      made.finding({.kind = format::FindingKind::kFreedUnderOutput,
                    .level = format::Level::kError,
                    .launch_stack = {recorded.place, "forward (train.py:12)"}});
    }
    made.stats({.slot = "output:0", .values = {1, 2, last}});
    made.close();
    return folder / name;
  };
  const auto compare = [&, base = trace("base.ctrace", 3, false)](const std::string& cand) {
    return run_process({CONVTRACE_DIFF_PROGRAM, "--json", report, base, cand, "--exact", "off"});
  };
  const ProcessResult text = compare(trace("other.ctrace", 30, true));
  CHECK(text.exit_code == 1);
  CHECK_THAT(text.out, Catch::Contains("op::inner() at "));
  check_named(tools::Json::parse(std::ifstream(report))["cause"]["stacks"]["launch"], recorded);
  const ProcessResult equal = compare(trace("equal.ctrace", 3, true));
  CHECK(equal.exit_code == 4);
  CHECK_THAT(equal.out, Catch::Contains("op::inner() at "));
  check_named(tools::Json::parse(std::ifstream(report))["findings"]["cand"][0]["stacks"]["launch"],
              recorded);
}

TEST_CASE("symbols: a library that was built anew gives no names, and that is said",
          "[cli][symbols]") {
  const Recorded recorded = record();
  std::string other = build_id();
  other.front() = other.front() == '0' ? '1' : '0';
  const Found found = findings_of(recorded.place, other + ' ' + kLibrary);
  CHECK(found.launch == Frames{recorded.place, "forward (train.py:12)"});
  CHECK_THAT(found.err, Catch::Contains("functions of libsymbols_library.so have no names") &&
                            Catch::Contains("was built anew"));
  // Who asks is not told what does not matter: the frame has its name.
  const std::string exported = "f()+0x1c (" + recorded.place + ')';
  const Found named = findings_of(exported, other + ' ' + kLibrary);
  CHECK(named.launch.front() == exported);
  CHECK(named.err.empty());
}

TEST_CASE("symbols: without a build id a library counts if it is older than the trace",
          "[cli][symbols]") {
  const Recorded recorded = record();
  const TempDir folder;
  const std::string copy = folder / kName;
  std::filesystem::copy_file(kLibrary, copy);
  CHECK(findings_of(recorded.place, "- " + copy).launch.front() == recorded.place);
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::years(20);
  std::filesystem::last_write_time(copy, long_ago);
  check_named(findings_of(recorded.place, "- " + copy).launch, recorded);
}

TEST_CASE("symbols: what cannot be read stays as recorded", "[cli][symbols]") {
  const TempDir folder;
  const std::string text = folder / "text.so", pipe = folder / "pipe.so";
  std::ofstream(text) << "no library";
  std::filesystem::last_write_time(
      text, std::filesystem::file_time_type::clock::now() - std::chrono::years(20));
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  struct Case {
    std::string fact, why;
  };
  const Case cases[] = {{"- /no/such/file.so", "is not on this machine"},
                        {"- relative.so", "is not on this machine"},
                        {"00ff " + pipe, "is not on this machine"},
                        {"00ff " + text, "was built anew"},
                        {"- " + text, "could not read"}};
  const std::string place = std::string(kName) + "+0x1234";
  for (const Case& c : cases) {
    CAPTURE(c.fact);
    const Found found = findings_of(place, c.fact);
    CHECK(found.launch.front() == place);
    CHECK_THAT(found.err, Catch::Contains(c.why));
  }
  for (const char* odd : {"libsymbols_library.so+0x", "libsymbols_library.so+0xzz", "+0x12", ")",
                          "(libsymbols_library.so+0x12)", "libsymbols_library.so+0x0",
                          "libsymbols_library.so+0xfffffffffffffffff"}) {
    CAPTURE(odd);
    CHECK(findings_of(odd, build_id() + ' ' + kLibrary).launch.front() == odd);
  }
}

TEST_CASE("symbols: without binutils frames stay as recorded, and that is said", "[cli][symbols]") {
  const Recorded recorded = record();
  ProcessOptions options;
  options.environment = {"PATH=/nowhere"};
  const Found found = findings_of(recorded.place, build_id() + ' ' + kLibrary, options);
  CHECK(found.launch.front() == recorded.place);
  CHECK_THAT(found.err, Catch::Contains("addr2line (binutils) is not installed"));
}

}  // namespace convtrace::test
