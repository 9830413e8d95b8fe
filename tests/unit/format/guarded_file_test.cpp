#include "format/base/guarded_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

int new_file(const std::string& path, int flags = 0) {
  return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);
}

/// A file, in a program that does not know of it.
struct Guarded {
  TempDir folder;
  std::string path = folder / "trace";
  int opened = new_file(path);
  std::shared_ptr<GuardedFile> file = std::make_shared<GuardedFile>(opened, path, true);
  int number = file->descriptor();

  /// @return whether the file was there.
  [[nodiscard]] bool append(std::string_view text) {
    const int fd = file->descriptor();
    if (fd < 0) return false;
    CHECK(pwrite(fd, text.data(), text.size(), size) == static_cast<ssize_t>(text.size()));
    size += static_cast<off_t>(text.size());
    return true;
  }
  /// A file of the program gets the number.
  void take_number(const std::string& name) const {
    const int foreign = open((folder / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(dup2(foreign, number) == number);
    close(foreign);
  }

  off_t size = 0;
};

TEST_CASE("guarded file: it takes a number above the program's, and gives back the one it had",
          "[format][guarded]") {
  Guarded g;
  CHECK(g.number >= 200);
  CHECK(g.number < 256);
  CHECK(fcntl(g.opened, F_GETFD) == -1);
  CHECK((fcntl(g.number, F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(g.append("one"));
  REQUIRE(g.append("two"));
  CHECK(text_of(g.path) == "onetwo");
  g.file.reset();
  CHECK(fcntl(g.number, F_GETFD) == -1);
}

TEST_CASE("guarded file: below a low limit of descriptors it has the highest, or the only one",
          "[format][guarded]") {
  const TempDir folder;
  const pid_t child = fork();
  if (child == 0) {
    int lowest = open("/dev/null", O_RDONLY);
    const auto number_below = [&](rlim_t limit, const char* name) {
      const rlimit numbers{limit, limit};
      setrlimit(RLIMIT_NOFILE, &numbers);
      GuardedFile file(new_file(folder / name), folder / name, true);
      return file.descriptor();
    };
    close(lowest);
    const int highest = number_below(static_cast<rlim_t>(lowest) + 3, "a");
    const int only = number_below(static_cast<rlim_t>(lowest) + 1, "b");
    _exit(highest == lowest + 2 && only == lowest ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("guarded file: a number that the program closed is found again by the path",
          "[format][guarded]") {
  Guarded g;
  REQUIRE(g.append("one"));
  REQUIRE(close(g.number) == 0);
  REQUIRE(g.append("two"));
  CHECK(text_of(g.path) == "onetwo");
  // And locked again.
  const int other = open(g.path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(flock(other, LOCK_EX | LOCK_NB) != 0);
  close(other);
}

TEST_CASE("guarded file: a renamed file is found by its new name", "[format][guarded]") {
  Guarded g;
  fs::rename(g.path, g.folder / "renamed");
  g.file->set_path(g.folder / "renamed");
  close(g.number);
  REQUIRE(g.append("one"));
  CHECK(text_of(g.folder / "renamed") == "one");
}

TEST_CASE(
    "guarded file: a file of the program that got the number is neither written, cut nor closed",
    "[format][guarded]") {
  Guarded g;
  write_text(g.folder / "checkpoint", "of the user");
  REQUIRE(g.append("one"));
  g.take_number("checkpoint");
  const bool found_again = GENERATE(true, false);
  if (!found_again) fs::remove(g.path);
  CHECK(g.append("two") == found_again);
  CHECK(text_of(g.path) == (found_again ? "onetwo" : ""));
  g.file.reset();
  CHECK(text_of(g.folder / "checkpoint") == "of the user");
  CHECK(fcntl(g.number, F_GETFD) != -1);
  close(g.number);
}

TEST_CASE("guarded file: another file under its path is not taken for it", "[format][guarded]") {
  Guarded g;
  REQUIRE(g.append("one"));
  close(g.number);
  fs::remove(g.path);  // a file system may give the inode to the next file
  SECTION("a file") { write_text(g.path, "one"); }
  SECTION("a link") {
    write_text(g.folder / "other", "one");
    fs::create_symlink(g.folder / "other", g.path);
  }
  SECTION("a pipe that nobody reads") { REQUIRE(mkfifo(g.path.c_str(), 0600) == 0); }
  CHECK_FALSE(g.append("two"));
  if (fs::is_regular_file(g.path)) CHECK(text_of(g.path) == "one");
}

TEST_CASE("guarded file: the program's own descriptor of the file is the program's",
          "[format][guarded]") {
  Guarded g;
  g.take_number("trace");
  CHECK(g.file->descriptor() != g.number);
  g.file.reset();
  CHECK(fcntl(g.number, F_GETFD) != -1);
  close(g.number);
}

TEST_CASE("guarded file: what the number's place in the file is moved to, the file is found again",
          "[format][guarded]") {
  Guarded g;
  REQUIRE(g.append("one"));
  REQUIRE(lseek(g.number, 0, SEEK_SET) == 0);
  REQUIRE(g.append("two"));
  CHECK(g.file->descriptor() != g.number);
  CHECK(text_of(g.path) == "onetwo");
  close(g.number);
}

TEST_CASE("guarded file: a file is removed only while its name is its own", "[format][guarded]") {
  const Guarded g;
  fs::rename(g.path, g.folder / "elsewhere");
  write_text(g.path, "of the user");
  g.file->unlink();
  CHECK(fs::exists(g.path));
  fs::rename(g.folder / "elsewhere", g.path);
  g.file->unlink();
  CHECK_FALSE(fs::exists(g.path));
}

TEST_CASE("guarded file: lines go to the end of a log that others write too, or into a pipe",
          "[format][guarded]") {
  const TempDir folder;
  const std::string path = folder / "log";
  GuardedFile log(new_file(path, O_APPEND), path, false);
  log.append("one\n", 4);
  std::ofstream(path, std::ios::app) << "other\n";
  close(log.descriptor());
  log.append("two\n", 4);
  log.append("three\n", 6);
  CHECK(text_of(path) == "one\nother\ntwo\nthree\n");

  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  GuardedFile channel(ends[1], {}, false);
  channel.append("line\n", 5);
  char read_back[8] = {};
  CHECK(read(ends[0], read_back, sizeof read_back) == 5);
  close(channel.descriptor());
  CHECK(channel.descriptor() == -1);
  close(ends[0]);
}

}  // namespace
}  // namespace convtrace
