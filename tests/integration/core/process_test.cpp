// The built libraries in a process of their own: what appears on disk and on stderr, and that the
// host never suffers.

#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/integration/core/place.h"

using namespace convtrace;
using namespace convtrace::test;

namespace {

/// A file older than the moment in which two ranks of one job may race for a name.
void make_old_file(const std::string& path) {
  std::ofstream(path) << "old";
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

}  // namespace

TEST_CASE("engine: a process that trains leaves one complete, private trace and says nothing",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("train");
  CHECK(result.exit_code == 0);
  CHECK(result.out.empty());
  CHECK(result.err.empty());
  REQUIRE(place.files().size() == 1);
  const std::string path = place.files()[0];
  CHECK(fs::path(path).filename().string().find("convtrace-0-") == 0);
  CHECK((fs::status(path).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  Contents trace = read(path);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.records["step"] == 10);
  CHECK(trace.records["scope"] == 20);
  CHECK(trace.records["stats"] == 10);
  CHECK(trace.lost == 0);
  CHECK(trace.meta.command_line.back() == "train");
  CHECK(fact(trace, "setting.CONVTRACE_MODE") == "stats");
}

TEST_CASE("engine: a process that never trains leaves and says nothing", "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("idle");
  CHECK(result.exit_code == 0);
  CHECK(result.out.empty());
  CHECK(result.err.empty());
  CHECK(place.files().empty());
}

TEST_CASE("engine: off switch and unwanted rank leave and say nothing", "[engine][integration]") {
  const Place place;
  const TempDir elsewhere;
  const std::string config = elsewhere / "off.toml";
  std::ofstream(config) << "mode = \"off\"\n";
  for (const std::vector<std::string>& environment :
       {std::vector<std::string>{"CONVTRACE_CONFIG=" + config},
        std::vector<std::string>{"CONVTRACE_RANKS=1-3", "RANK=0"}}) {
    const ProcessResult result = place.run("train", environment);
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
  }
  CHECK(place.files().empty());
}

TEST_CASE("engine: ranks that the program tells late have traces of their names",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("late-ranks", {"CONVTRACE_OUTPUT=rank-%r.ctrace"});
  CHECK(result.exit_code == 0);
  CHECK(place.files() ==
        std::vector<std::string>{place.folder / "rank-0.ctrace", place.folder / "rank-1.ctrace"});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const Contents trace = read(place.folder / ("rank-" + std::to_string(rank) + ".ctrace"));
    CHECK(trace.state == TraceState::kComplete);
    CHECK(trace.meta.rank == rank);
    CHECK(trace.meta.world_size == 2);
    CHECK(trace.last_step == 1);
  }
}

TEST_CASE("engine: ranks that the job does not have are said once", "[engine][integration]") {
  const Place place;
  for (const std::vector<std::string>& environment :
       {std::vector<std::string>{"CONVTRACE_RANKS=3"},
        std::vector<std::string>{"CONVTRACE_RANKS=2-3", "RANK=0", "WORLD_SIZE=2"}}) {
    const ProcessResult result = place.run("train", environment);
    CHECK(result.exit_code == 0);
    CHECK(lines(result.err) == 1);
    CHECK(result.err.find("names none of this job's ranks, 0 to ") != std::string::npos);
  }
  CHECK(place.run("train", {"CONVTRACE_RANKS=2-3", "RANK=1", "WORLD_SIZE=2"}).err.empty());
  CHECK(place.files().empty());
}

TEST_CASE("engine: a wrong setting is said, and the program runs untraced",
          "[engine][integration]") {
  const Place place;
  for (const char* wrong : {"CONVTRACE_STEP=3", "CONVTRACE_STEPS=9-3x"}) {
    const ProcessResult result = place.run("train", {wrong});
    INFO(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.err.find("CONVTRACE_STEPS") != std::string::npos);
    CHECK(result.err.find("not traced") != std::string::npos);
    CHECK(lines(result.err) == 2);
  }
  CHECK(place.files().empty());
}

TEST_CASE("engine: an output that cannot be written costs one line", "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("until-off", {"CONVTRACE_OUTPUT=/proc/nowhere/t.ctrace"});
  CHECK(result.exit_code == 0);
  CHECK(lines(result.err) == 1);
  CHECK(result.err.find("/proc/nowhere/t.ctrace") != std::string::npos);
}

TEST_CASE("engine: an older file is refused, or replaced when asked", "[engine][integration]") {
  const Place place;
  const std::string path = place.folder / "t.ctrace";
  make_old_file(path);
  const ProcessResult refused = place.run("until-off", {"CONVTRACE_OUTPUT=t.ctrace"});
  CHECK(refused.exit_code == 0);
  CHECK(lines(refused.err) == 1);
  CHECK(refused.err.find("CONVTRACE_OVERWRITE=1") != std::string::npos);
  CHECK(read_file(path) == "old");
  CHECK(place.files().size() == 1);

  const ProcessResult replaced =
      place.run("train", {"CONVTRACE_OUTPUT=t.ctrace", "CONVTRACE_OVERWRITE=1"});
  CHECK(replaced.exit_code == 0);
  CHECK(replaced.err.empty());
  CHECK(read(path).state == TraceState::kComplete);
}

TEST_CASE("engine: two living processes with one name get two files", "[engine][integration]") {
  const Place place;
  const std::vector<std::string> environment{"CONVTRACE_OUTPUT=t.ctrace", "RANK=0"};
  ProcessResult first;
  std::thread other([&] { first = place.run("killed", environment); });
  while (!fs::exists(place.folder / "t.ctrace")) std::this_thread::yield();
  const ProcessResult second = place.run("train", {"CONVTRACE_OUTPUT=t.ctrace", "RANK=1"});
  other.join();
  CHECK(first.signal == SIGKILL);
  CHECK(second.exit_code == 0);
  CHECK(lines(second.err) <= 1);
  REQUIRE(place.files().size() == 2);
  CHECK(place.files()[0].find("t.ctrace") != std::string::npos);
  CHECK(place.files()[1].find("t.r1.") != std::string::npos);
  CHECK(read(place.files()[1]).meta.rank == 1);
}

TEST_CASE("engine: at the file size limit the trace ends, not the program",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("beyond-file-limit");
  CHECK(result.signal == 0);
  CHECK(result.exit_code == 0);
  CHECK(lines(result.err) == 1);
  CHECK(result.err.find("no space left") != std::string::npos);
  REQUIRE(place.files().size() == 1);
  CHECK(fs::file_size(place.files()[0]) <= 20'000);
  CHECK(read(place.files()[0]).state == TraceState::kUnclosed);
}

namespace {

/// A small file system. @param size "size=128k". @return false if making one needs more rights.
bool mount_small(const std::string& disk, const char* size) {
  fs::create_directory(disk);
  return mount("tmpfs", disk.c_str(), "tmpfs", 0, size) == 0;
}

}  // namespace

TEST_CASE("engine: on a full disk the trace ends, not the program", "[engine][integration]") {
  const Place place;
  const std::string disk = place.folder / "disk";
  if (!mount_small(disk, "size=128k")) {
    WARN("skipped: mounting a small file system needs more rights");
    return;
  }
  const ProcessResult result =
      place.run("until-off", {"CONVTRACE_OUTPUT=disk/t.ctrace", "CONVTRACE_MAX_BYTES=1G"});
  const TraceState state = read(disk + "/t.ctrace").state;
  umount2(disk.c_str(), MNT_DETACH);
  CHECK(result.exit_code == 0);
  CHECK(state == TraceState::kUnclosed);
  CHECK(lines(result.err) == 1);
  CHECK(result.err.find("no space left") != std::string::npos);
}

TEST_CASE("engine: half of a small disk is left to others without being asked",
          "[engine][integration]") {
  const Place place;
  const std::string disk = place.folder / "disk";
  if (!mount_small(disk, "size=1m")) {  // some chunks: one may go over the budget
    WARN("skipped: mounting a small file system needs more rights");
    return;
  }
  const ProcessResult result = place.run("until-off", {"CONVTRACE_OUTPUT=disk/t.ctrace"});
  const Contents trace = read(disk + "/t.ctrace");
  const uint64_t size = fs::file_size(disk + "/t.ctrace");
  umount2(disk.c_str(), MNT_DETACH);
  CHECK(result.exit_code == 0);
  CHECK(result.err.find("CONVTRACE_MAX_BYTES") != std::string::npos);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.lost > 0);
  CHECK(size >= 500 * 1024);
  CHECK(size < 1024 * 1024);
}

TEST_CASE("engine: a flight recorder writes what surrounds a finding, else nothing",
          "[engine][integration]") {
  const Place place;
  CHECK(place.run("train", {"CONVTRACE_RING=3", "CONVTRACE_OUTPUT=a.ctrace"}).exit_code == 0);
  Contents quiet = read(place.folder / "a.ctrace");
  CHECK(quiet.state == TraceState::kComplete);
  CHECK(quiet.records["stats"] == 0);
  CHECK(quiet.records["diagnostic"] == 1);
  CHECK(place.run("alias", {"CONVTRACE_RING=3", "CONVTRACE_OUTPUT=b.ctrace"}).exit_code == 0);
  const Contents found = read(place.folder / "b.ctrace");
  CHECK(found.state == TraceState::kComplete);
  CHECK(found.findings.size() == 2);
  CHECK(found.stacks[1] == std::vector<std::string>{"forward (train.py:7)"});
}

TEST_CASE("engine: at CONVTRACE_MAX_BYTES the trace is closed, with a record",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("until-off", {"CONVTRACE_MAX_BYTES=65536"});
  CHECK(result.exit_code == 0);
  CHECK(lines(result.err) == 1);
  CHECK(result.err.find("CONVTRACE_MAX_BYTES") != std::string::npos);
  REQUIRE(place.files().size() == 1);
  const Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.lost > 0);
}

TEST_CASE("engine: after kill -9 all that was flushed is there, and the trace is unclosed",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("killed");
  CHECK(result.signal == SIGKILL);
  REQUIRE(place.files().size() == 1);
  Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kUnclosed);
  CHECK(trace.records["stats"] == 100);
  CHECK(trace.last_step == 99);
}

TEST_CASE("engine: a process that ends without handlers leaves a readable trace",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("exit-hard");
  CHECK(result.exit_code == 0);
  for (const std::string& path : place.files()) {
    if (fs::file_size(path) > 0) CHECK(read(path).state == TraceState::kUnclosed);
  }
}

TEST_CASE("engine: the driver's entry and the observer's lead to one engine",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("both-entries", {"CONVTRACE_LOG=error"});
  CHECK(result.exit_code == 0);
  REQUIRE(place.files().size() == 1);
  Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.records["stats"] == 3);
}

TEST_CASE("engine: an output over a freed input is in the trace with three stacks",
          "[engine][integration][alias]") {
  const Place place;
  const ProcessResult result = place.run("alias");
  CHECK(result.exit_code == 0);
  REQUIRE(place.files().size() == 1);
  const Contents trace = read(place.files()[0]);
  CHECK(trace.findings == std::vector<format::FindingKind>{format::FindingKind::kOutputAliasesInput,
                                                           format::FindingKind::kFreedUnderOutput});
  REQUIRE(trace.stacks.size() == 3);
  const auto mentions = [](const std::vector<std::string>& stack, const char* part) {
    return std::any_of(stack.begin(), stack.end(), [part](const std::string& frame) {
      return frame.find(part) != std::string::npos;
    });
  };
  CHECK(mentions(trace.stacks[0], "integration_program"));
  CHECK_FALSE(mentions(trace.stacks[0], "libconvtrace"));
  CHECK(trace.stacks[1] == std::vector<std::string>{"forward (train.py:7)"});
  CHECK(trace.stacks[2] == std::vector<std::string>{"<module> (train.py:9)"});
  CHECK(trace.finding_texts[1].find("demo::relu") != std::string::npos);
}
