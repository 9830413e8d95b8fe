#include "interposer/core/control/output_name.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace convtrace;
using namespace convtrace::engine;
using test::TempDir;

namespace {

const OutputFacts kFacts{.host = "node7", .pid = 123, .rank = 3, .start_folder = "/home/u"};

std::map<std::string, std::string> g_environment;
const char* fake_env(const char* name) {
  const auto found = g_environment.find(name);
  return found == g_environment.end() ? nullptr : found->second.c_str();
}

/// A file older than the moment in which two ranks of one job may race.
void make_old_file(const std::string& path) {
  std::ofstream(path) << "old";
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), old, 0) == 0);
}

}  // namespace

TEST_CASE("output_name: patterns and relative names", "[engine][output]") {
  CHECK(expand_output("convtrace-%r-%p.ctrace", kFacts) == "/home/u/convtrace-3-123.ctrace");
  CHECK(expand_output("/x/%h.%%.%q", kFacts) == "/x/node7.%.%q");
  CHECK(expand_output("sub/t%", kFacts) == "/home/u/sub/t%");
}

TEST_CASE("output_name: the sibling's tag goes before the extension of the name, not of a folder",
          "[engine][output]") {
  CHECK(name_for_sibling("/a/run.ctrace", kFacts) == "/a/run.r3.123.ctrace");
  CHECK(name_for_sibling("/a.b/run", kFacts) == "/a.b/run.r3.123");
  CHECK(name_for_sibling("/a/.hidden", kFacts) == "/a/.hidden.r3.123");
}

TEST_CASE("output_name: rank by launcher, in order, and only if it is a number",
          "[engine][output]") {
  g_environment.clear();
  CHECK(rank_from_environment(fake_env).rank == 0);
  CHECK(rank_from_environment(fake_env).world_size == 1);
  g_environment = {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}};
  CHECK(rank_from_environment(fake_env).rank == 5);
  CHECK(rank_from_environment(fake_env).world_size == 8);
  g_environment["SLURM_PROCID"] = "6";
  CHECK(rank_from_environment(fake_env).rank == 6);
  CHECK(rank_from_environment(fake_env).world_size == 7);
  g_environment["RANK"] = "two";
  CHECK(rank_from_environment(fake_env).rank == 6);
  g_environment["RANK"] = "2";
  g_environment["WORLD_SIZE"] = "4";
  CHECK(rank_from_environment(fake_env).rank == 2);
  CHECK(rank_from_environment(fake_env).world_size == 4);
}

TEST_CASE("output_name: a new file is private and locked", "[engine][output]") {
  const TempDir dir;
  std::string why;
  Result<OutputFile> file = open_output(dir / "t.ctrace", false, kFacts, why);
  REQUIRE(file.ok());
  CHECK(file.value().notice.empty());
  struct stat status;
  REQUIRE(fstat(file.value().fd, &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK((fcntl(file.value().fd, F_GETFD) & FD_CLOEXEC) != 0);
  close(file.value().fd);
}

TEST_CASE("output_name: an older file is refused, and replaced only when asked",
          "[engine][output]") {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  make_old_file(path);
  std::string why;
  const Result<OutputFile> refused = open_output(path, false, kFacts, why);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code == StatusCode::kAlreadyExists);
  CHECK(why.find(path) != std::string::npos);
  CHECK(why.find("CONVTRACE_OVERWRITE=1") != std::string::npos);
  CHECK(std::filesystem::file_size(path) == 3);

  Result<OutputFile> replaced = open_output(path, true, kFacts, why);
  REQUIRE(replaced.ok());
  CHECK(replaced.value().path == path);
  CHECK(std::filesystem::file_size(path) == 0);
  close(replaced.value().fd);
}

TEST_CASE("output_name: a name in use gets a sibling, even with overwrite", "[engine][output]") {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  std::string why;
  Result<OutputFile> first = open_output(path, false, kFacts, why);
  REQUIRE(first.ok());
  for (const bool overwrite : {false, true}) {
    OutputFacts facts = kFacts;
    facts.pid = overwrite ? 124 : 125;
    Result<OutputFile> second = open_output(path, overwrite, facts, why);
    REQUIRE(second.ok());
    CHECK(second.value().path == name_for_sibling(path, facts));
    CHECK(second.value().notice.find(second.value().path) != std::string::npos);
    close(second.value().fd);
  }
  close(first.value().fd);
}

TEST_CASE("output_name: what is no regular file is never replaced", "[engine][output]") {
  const TempDir dir;
  std::string why;
  const Result<OutputFile> device = open_output("/dev/null", true, kFacts, why);
  CHECK_FALSE(device.ok());
  CHECK(std::filesystem::exists("/dev/null"));
  const std::string folder = dir / "folder";
  std::filesystem::create_directory(folder);
  CHECK_FALSE(open_output(folder, true, kFacts, why).ok());
  CHECK(std::filesystem::is_directory(folder));
}

TEST_CASE("output_name: one missing folder is made, more of them are a mistake",
          "[engine][output]") {
  const TempDir dir;
  std::string why;
  const Result<OutputFile> file = open_output(dir / "base/t.ctrace", false, kFacts, why);
  REQUIRE(file.ok());
  close(file.value().fd);
  CHECK(std::filesystem::is_regular_file(dir / "base/t.ctrace"));
  CHECK_FALSE(open_output(dir / "no/such/t.ctrace", false, kFacts, why).ok());
  CHECK(why.find("No such file or directory") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(dir / "no"));
}

TEST_CASE("output_name: a place that cannot be written says so", "[engine][output]") {
  std::string why;
  const Result<OutputFile> file = open_output("/proc/nowhere/t.ctrace", false, kFacts, why);
  REQUIRE_FALSE(file.ok());
  CHECK(file.status().code == StatusCode::kIoError);
  CHECK(why.find("/proc/nowhere/t.ctrace") != std::string::npos);
}
