#include <filesystem>
#include <fstream>
#include <set>

#include "tests/unit/tools/check/check_run.h"
#include "tests/unit/tools/cli/cli.h"
#include "tools/check/catalog.h"

namespace convtrace::test {
namespace {

using tools::Json;

Training faulty() {
  Training run = training(5);
  run.at(3, "fc1", "grad:weight").values = run.at(2, "fc1", "grad:weight").values;
  return run;
}
Training hinting() {
  Training run = training(5);
  run.at(3, "", "input:0").values[0] = kNan;
  return run;
}
ProcessResult run_check(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "check");
  return convtrace(arguments);
}
void leave_open(const Training& run, const std::string& path) {
  TraceBuilder trace(path);
  run.append_to(trace);
  trace.leave_unclosed();
}
/// Overwrites a few bytes in the middle.
void damage(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
  file << "damage damage damage damage";
}

TEST_CASE("check command: exit codes of a complete trace", "[check][command]") {
  const TempDir dir;
  training(5).write(dir / "clean.ctrace");
  faulty().write(dir / "faulty.ctrace");
  hinting().write(dir / "hint.ctrace");
  const ProcessResult clean = run_check({dir / "clean.ctrace"});
  CHECK(clean.exit_code == 0);
  CHECK(clean.err.empty());
  CHECK(clean.out.starts_with("Nothing found in 5 training steps of 1 rank"));
  const ProcessResult hint = run_check({dir / "hint.ctrace"});
  CHECK(hint.exit_code == 0);
  CHECK(contains(hint.out, "hint nan"));
  const ProcessResult error = run_check({dir / "faulty.ctrace"});
  CHECK(error.exit_code == 4);
  CHECK(contains(error.out, "error stale-gradient  step 3, backward, fc1, grad:weight"));
}

TEST_CASE("check command: unclosed and damaged traces", "[check][command]") {
  const TempDir dir;
  leave_open(training(5), dir / "open.ctrace");
  leave_open(faulty(), dir / "faulty.ctrace");
  training(60).write(dir / "damaged.ctrace");
  damage(dir / "damaged.ctrace");
  const ProcessResult open = run_check({dir / "open.ctrace"});
  CHECK(open.exit_code == 3);
  CHECK(contains(open.out, "incomplete  "));
  CHECK(contains(open.out, "open.ctrace: the trace was not closed, or is damaged"));
  CHECK(run_check({dir / "damaged.ctrace"}).exit_code == 3);
  CHECK(run_check({dir / "faulty.ctrace"}).exit_code == 4);
}

TEST_CASE("check command: usage", "[check][command]") {
  const TempDir dir;
  training(2).write(dir / "t.ctrace");
  const ProcessResult none = run_check({});
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "CT-"));
  const ProcessResult missing = run_check({dir / "missing.ctrace"});
  CHECK(missing.exit_code == 2);
  CHECK(contains(missing.err, "missing.ctrace"));
  std::ofstream(dir / "text.txt")
      << "no trace, but a text of more bytes than a header of a trace has";
  CHECK(run_check({dir / "text.txt"}).exit_code == 2);
  std::filesystem::create_directory(dir / "empty");
  CHECK(run_check({dir / "empty"}).exit_code == 2);
  for (const char* option : {"--only", "--skip"}) {
    const ProcessResult unknown = run_check({dir / "t.ctrace", option, "mode,stale-gradent"});
    CHECK(unknown.exit_code == 2);
    CHECK(contains(unknown.err, "stale-gradent"));
    CHECK(contains(unknown.err, "stale-gradient"));
    CHECK(unknown.out.empty());
  }
  CHECK(contains(run_check({dir / "t.ctrace", "--only", "zzzz"}).err, "convtrace check --list"));
}

TEST_CASE("check command: --only and --skip", "[check][command]") {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  faulty().write(path);
  CHECK(run_check({path, "--skip", "stale-gradient"}).exit_code == 0);
  CHECK(run_check({path, "--only", "stale-gradient"}).exit_code == 4);
  CHECK(run_check({path, "--only", "mode,nan"}).exit_code == 0);
  CHECK(run_check({path, "--only", "stale-gradient", "--skip", "stale-gradient"}).exit_code == 0);
  // Kinds of findings about memory are ids, too.
  CHECK(run_check({path, "--only", "use-after-free"}).exit_code == 0);
  const Json json = Json::parse(run_check({path, "--only", "nan", "--json", "-"}).out);
  REQUIRE(json["checks"].size() == 1);
  CHECK(json["checks"][0]["id"] == "nan");
}

TEST_CASE("check command: a list of ids ends with its word", "[check][command]") {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  faulty().write(path);
  CHECK(run_check({"--only", "stale-gradient", path}).exit_code == 4);
  CHECK(run_check({"--skip", "nan,mode", path}).exit_code == 4);
}

TEST_CASE("check command: a folder of ranks, one of which cannot be read", "[check][command]") {
  const TempDir dir;
  const std::string folder = dir / "run";
  std::filesystem::create_directory(folder);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Training run = training(4, rank + 1);
    run.rank = rank, run.world_size = 2;
    run.write(folder + "/" + std::to_string(rank) + ".ctrace");
  }
  const ProcessResult both = run_check({"--json", "-", folder});
  CHECK(both.exit_code == 0);
  CHECK(Json::parse(both.out)["ranks"] == 2);
  CHECK(both.err.starts_with("Nothing found in 4 training steps of 2 ranks"));
  std::ofstream(folder + "/2.ctrace") << "nothing";
  const ProcessResult third = run_check({folder});
  CHECK(third.exit_code == 3);
  CHECK(contains(third.out, "2.ctrace"));
}

TEST_CASE("check command: a rank that was started twice", "[check][command]") {
  const TempDir dir;
  const std::string folder = dir / "run";
  std::filesystem::create_directory(folder);
  for (uint32_t file = 0; file < 3; ++file) {
    Training run = training(4, file + 1);
    run.rank = file == 0 ? 0 : 1, run.world_size = 2;
    // The first start of rank 1 ended before its first step, the second parts from rank 0.
    if (file == 1) {
      std::erase_if(run.entries, [](const Entry& entry) {
        return entry.step > 0 || entry.value.phase != Phase::kForward;
      });
    }
    if (file == 2) run.at(2, "fc2", "param:weight").values[0] += 1;
    run.write(folder + "/" + std::to_string(file) + ".ctrace");
  }
  const ProcessResult result = run_check({folder});
  CHECK(result.signal == 0);
  // Which of its traces counts is a decision; exit codes of a result are these.
  const std::set<int> results = {0, 4};
  CHECK(results.contains(result.exit_code));
}

TEST_CASE("check command: a call whose output was not recorded", "[check][command]") {
  const TempDir dir;
  Training run = training(3);
  run.fact(0, "act", "class", "torch.nn.modules.activation.ReLU");
  for (uint32_t call = 0; call < 3; ++call) {
    run.before(1, "", "loss", {.scope = "act", .slot = "input:0", .call = call, .values = {1, 2}});
    if (call == 1) continue;
    run.before(1, "", "loss", {.scope = "act", .slot = "output:0", .call = call, .values = {1, 2}});
  }
  run.write(dir / "t.ctrace");
  const ProcessResult result = run_check({dir / "t.ctrace"});
  CHECK(result.signal == 0);
  CHECK(result.exit_code == 0);
}

TEST_CASE("check command: --list names all checks", "[check][command]") {
  const ProcessResult list = run_check({"--list"});
  CHECK(list.exit_code == 0);
  CHECK(list.err.empty());
  for (const char* id : {"optimizer-of-others  ", "\nnan  ", "\nsame-data  ", "\nclipping  "})
    CHECK(contains(list.out, id));
  CHECK(
      contains(list.out, "\nweight-decay  weight decay of norms and biases (only with --only)\n"));
}

TEST_CASE("check command: docs/checks.md has a section and a row for each id", "[check][docs]") {
  const std::string page = read_file(std::string(CONVTRACE_ROOT) + "/docs/checks.md");
  size_t sections = 0;
  for (const check::CatalogRow& row : check::catalog()) {
    INFO(row.id);
    CHECK(contains(page, "\n### " + std::string(row.id) + "\n"));
    CHECK(contains(page, "\n| `" + std::string(row.id) + "` | "));
  }
  for (size_t at = page.find("\n### "); at != std::string::npos; at = page.find("\n### ", at + 1))
    ++sections;
  CHECK(sections == check::catalog().size());
}

TEST_CASE("check command: reports go to files, or one to standard output", "[check][command]") {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  faulty().write(path);
  const ProcessResult files = run_check(
      {"--json", dir / "r.json", "--html", dir / "r.html", "--junit", dir / "r.xml", path});
  CHECK(files.exit_code == 4);
  CHECK(Json::parse(read_file(dir / "r.json"))["findings"][0]["id"] == "stale-gradient");
  CHECK(read_file(dir / "r.html").starts_with("<!doctype html>"));
  CHECK(contains(read_file(dir / "r.xml"), "failures=\"1\""));
  CHECK(contains(files.out, "error stale-gradient"));
  const ProcessResult out = run_check({"--junit", "-", path});
  CHECK(out.out.starts_with("<?xml"));
  CHECK(contains(out.err, "error stale-gradient"));
  CHECK(run_check({"--junit", "-", "--json", "-", path}).exit_code == 2);
  CHECK(run_check({"--junit", dir / "same", "--json", dir / "same", path}).exit_code == 2);
  CHECK(run_check({"--json", dir / "no/such/folder.json", path}).exit_code == 2);
}

TEST_CASE("check command: a trace is not overwritten by a report", "[check][command]") {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  training(3).write(path);
  const std::string before = read_file(path);
  for (const char* option : {"--json", "--html", "--junit"}) {
    const ProcessResult result = run_check({option, path, path});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "is a trace, and stays one"));
  }
  CHECK(read_file(path) == before);
}

TEST_CASE("check command: names of files and modules do not move a terminal", "[check][command]") {
  const TempDir dir;
  Training run = training(4);
  for (Entry& entry : run.entries)
    if (entry.value.scope == "fc2") entry.value.scope = "fc\x1b[31m2\n";
  run.at(2, "fc\x1b[31m2\n", "output:0").values[0] = kNan;
  run.at(2, "", "output:0").values[0] = kNan;
  leave_open(run, dir / "a\x1b[2Jb.ctrace");
  const ProcessResult result = run_check({dir / "a\x1b[2Jb.ctrace"});
  CHECK(result.exit_code == 4);
  CHECK_FALSE(contains(result.out, "\x1b"));
  CHECK(contains(result.out, "fc\\x1b[31m2\\x0a"));
  CHECK_FALSE(contains(run_check({dir / "a\x1b[2Jc.ctrace"}).err, "\x1b"));
}

}  // namespace
}  // namespace convtrace::test
