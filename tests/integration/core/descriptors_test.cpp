// A program that closes, takes and inherits descriptors that it does not own (meddler.cpp): its files are the same with
// and without convtrace, and the trace is whole or its end was said.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

/// How a run is traced: each with some of the others.
struct Way {
  explicit Way(uint64_t seed)
      : into_log(seed % 2 == 0),
        watched(seed / 2 % 8 == 1),
        ring(seed % 3 == 0),
        launched(seed / 2 % 3 == 1) {}
  bool into_log;
  bool watched;   ///< with a file of settings, which the program rewrites
  bool ring;      ///< by a flight recorder, which a signal triggers
  bool launched;  ///< by `convtrace run`
};

Outcome meddle(uint64_t seed, const std::string& folder,
               const std::vector<std::string>& settings = {}, bool slow = false,
               std::vector<std::string> command = {}) {
  fs::create_directory(folder);
  std::ofstream(folder + "/settings.toml") << "mode = \"stats\"\n";
  command.insert(command.end(), {MEDDLER, std::to_string(seed)});
  if (geteuid() == 0) command.emplace_back("root");
  if (slow) command.emplace_back("slow");
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
  bool reloaded = false;   ///< its file of settings was read again
  bool triggered = false;  ///< the flight recorder has written
};

/// In how many runs it came to that.
struct Reached {
  uint64_t reloads = 0, triggers = 0;
};

Trace look_at(const std::string& path) {
  Trace trace;
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) return trace;
  while (const format::Event* event = opened.value()->next()) {
    const auto* said = std::get_if<format::Diagnostic>(event);
    if (said != nullptr && said->message.find("USR2") != std::string::npos) trace.triggered = true;
  }
  trace.complete = opened.value()->state() == reader::TraceState::kComplete;
  trace.readable = opened.value()->problems().empty();
  const auto& command = opened.value()->meta().command_line;
  trace.of_other_program = std::find(command.begin(), command.end(), "exec") != command.end();
  for (const auto& [name, value] : opened.value()->meta().facts)
    trace.reloaded |= name == "setting.reloads" && value != "0";
  return trace;
}

/// The lines by which `convtrace run` says where each trace is.
uint64_t announcements(const std::string& said) {
  return occurrences("\n" + said, "\nconvtrace: ");
}

void check_run(uint64_t seed, Reached& reached) {
  INFO("seed " << seed);
  const TempDir place;
  const Way way(seed);
  const Outcome plain = meddle(seed, place / "plain");
  const std::string log = place / "lines.log";
  std::vector<std::string> settings = {"CONVTRACE_OUTPUT=" + (place / "%p.ctrace")};
  std::vector<std::string> launcher;
  if (way.launched) {
    launcher = {RUN, "run", "--"};
  } else {
    settings.push_back(std::string("LD_PRELOAD=") + STUB);
  }
  if (way.into_log) settings.push_back("CONVTRACE_LOG_FILE=" + log);
  if (way.watched) settings.push_back("CONVTRACE_CONFIG=" + (place / "traced/settings.toml"));
  if (way.ring) settings.emplace_back("CONVTRACE_RING=2,USR2");
  const Outcome traced = meddle(seed, place / "traced", settings, way.watched, launcher);
  REQUIRE(plain.result.exit_code == 0);
  REQUIRE(traced.result.exit_code == 0);
  CHECK(traced.result.out == plain.result.out);
  CHECK(difference(relative(plain, place / "plain"), relative(traced, place / "traced")) == "");

  // A log that is out of reach, too, gives its lines to stderr.
  const std::string said = (way.into_log ? read_file(log) : "") + traced.result.err;
  const uint64_t ends = occurrences(said, "CT-1111");
  CHECK(ends <= 1);
  CHECK(occurrences(said, "CT-1012") <= 1);
  // Where the root was changed before the writer came to open the trace, or to write to it.
  const uint64_t never = occurrences(said, "CT-1101");
  CHECK(never <= 1);
  // A changed root has no file of settings.
  const uint64_t kept = occurrences(said, "CT-1015");
  CHECK(kept <= (way.watched ? 1 : 0));
  INFO(said);
  CHECK(occurrences(said, "\n") ==
        ends + occurrences(said, "CT-1012") + never + kept + announcements(said));
  CHECK((announcements(said) > 0) == way.launched);
  uint64_t own = 0;
  for (const auto& entry : fs::directory_iterator(place.path())) {
    if (entry.path().extension() != ".ctrace" || (never == 1 && entry.file_size() == 0)) continue;
    const Trace trace = look_at(entry.path());
    CHECK(trace.readable);
    if (!trace.of_other_program) ++own;
    reached.reloads += trace.reloaded ? 1 : 0;
    reached.triggers += trace.triggered ? 1 : 0;
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
  Reached reached;
  for (uint64_t seed = 1; seed <= runs; ++seed) check_run(seed, reached);
  if (runs < 24) return;
  CHECK(reached.reloads > 0);
  CHECK(reached.triggers > 0);
}
