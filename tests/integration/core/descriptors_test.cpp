// A program that closes, takes and inherits descriptors that it does not own (meddler.cpp): its files are the same with
// and without convtrace, and the trace is whole or its end was said.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

using namespace convtrace;
using namespace convtrace::test;

namespace {

namespace fs = std::filesystem;

struct Outcome {
  ProcessResult result;
  std::map<std::string, std::string> files;  ///< what the program wrote, by name
};

Outcome meddle(uint64_t seed, const std::string& folder, const std::vector<std::string>& settings) {
  fs::create_directory(folder);
  std::vector<std::string> command{MEDDLER, std::to_string(seed)};
  if (geteuid() == 0) command.emplace_back("root");
  Outcome outcome;
  outcome.result = run_process(
      command, {settings, {"LD_PRELOAD", "RANK", "SLURM_PROCID", "WORLD_SIZE"}, folder});
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) outcome.files[entry.path()] = read_file(entry.path());
  }
  return outcome;
}

/// @return the files with the names that they have in their folder.
std::map<std::string, std::string> relative(const Outcome& outcome, const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& [path, content] : outcome.files) files[fs::relative(path, folder)] = content;
  return files;
}

/// @return the files that are not the same in both, with the first bytes of each.
std::string difference(const std::map<std::string, std::string>& plain,
                       const std::map<std::string, std::string>& traced) {
  std::string text;
  const auto show = [&](const char* way, const std::map<std::string, std::string>& files,
                        const std::string& name) {
    const auto found = files.find(name);
    text += std::string(" ") + way + ": " +
            (found == files.end() ? "none"
                                  : std::to_string(found->second.size()) + " bytes, \"" +
                                        found->second.substr(0, 100) + "\"");
  };
  std::map<std::string, std::string> all = plain;
  all.insert(traced.begin(), traced.end());
  for (const auto& [name, content] : all) {
    const auto a = plain.find(name);
    const auto b = traced.find(name);
    if (a != plain.end() && b != traced.end() && a->second == b->second) continue;
    text += name;
    show("plain", plain, name);
    show("traced", traced, name);
    text += "\n";
  }
  return text;
}

uint64_t occurrences(const std::string& text, const std::string& part) {
  uint64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Trace {
  bool readable = false;
  bool complete = false;
  bool of_other_program = false;
};

Trace look_at(const std::string& path) {
  Trace trace;
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) return trace;
  while (opened.value()->next() != nullptr) {
  }
  trace.complete = opened.value()->state() == reader::TraceState::kComplete;
  trace.readable = opened.value()->problems().empty();
  const auto& command = opened.value()->meta().command_line;
  trace.of_other_program = std::find(command.begin(), command.end(), "exec") != command.end();
  return trace;
}

void check_run(uint64_t seed) {
  INFO("seed " << seed);
  const TempDir place;
  const Outcome plain = meddle(seed, place / "plain", {});
  const std::string log = place / "lines.log";
  std::vector<std::string> settings = {std::string("LD_PRELOAD=") + STUB,
                                       "CONVTRACE_OUTPUT=" + (place / "%p.ctrace")};
  const bool into_log = seed % 2 == 0;
  if (into_log) settings.push_back("CONVTRACE_LOG_FILE=" + log);
  const Outcome traced = meddle(seed, place / "traced", settings);
  REQUIRE(plain.result.exit_code == 0);
  REQUIRE(traced.result.exit_code == 0);
  CHECK(traced.result.out == plain.result.out);
  CHECK(difference(relative(plain, place / "plain"), relative(traced, place / "traced")) == "");

  // A log that is out of reach, too, gives its lines to stderr.
  const std::string said = (into_log ? read_file(log) : "") + traced.result.err;
  const uint64_t ends = occurrences(said, "CT-1111");
  CHECK(ends <= 1);
  CHECK(occurrences(said, "CT-1012") <= 1);
  // Where the root was changed before the writer came to open the trace, or to write to it.
  const uint64_t never = occurrences(said, "CT-1101");
  CHECK(never <= 1);
  INFO(said);
  CHECK(occurrences(said, "\n") == ends + occurrences(said, "CT-1012") + never);
  uint64_t own = 0;
  for (const auto& entry : fs::directory_iterator(place.path())) {
    if (entry.path().extension() != ".ctrace" || (never == 1 && entry.file_size() == 0)) continue;
    const Trace trace = look_at(entry.path());
    CHECK(trace.readable);
    if (!trace.of_other_program) ++own;
    CHECK(trace.complete == (trace.of_other_program || ends == 0));
  }
  CHECK(own + never == 1);
}

}  // namespace

TEST_CASE(
    "descriptors: no file of a program that misuses them changes, and the trace is whole or its "
    "end is said",
    "[integration][descriptors]") {
  const char* const asked = getenv("MEDDLER_RUNS");
  const uint64_t runs = asked != nullptr ? strtoull(asked, nullptr, 10) : 24;
  for (uint64_t seed = 1; seed <= runs; ++seed) check_run(seed);
}
