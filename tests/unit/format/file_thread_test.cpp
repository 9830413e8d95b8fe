#include "format/file/file_thread.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>

#include "format/file/file_sink.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace convtrace::format {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

/// A sink with a thread, in a process that does not know of it.
struct Threaded {
  TempDir folder;
  std::string path = folder / "trace";
  std::shared_ptr<FileThread> file = std::make_shared<FileThread>(FileThread::Table::kPrivate);
  FileSink sink{file};

  void create() const {
    file->run(
        [&] { file->hold(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), path); });
  }
  [[nodiscard]] Status append(std::string_view text) { return sink.append(bytes_of(text), {}); }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream in(folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// @return the number that the process has for the trace; -1: none.
  [[nodiscard]] int number() const {
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      if (fs::read_symlink(entry.path(), gone) == fs::path(path))
        return std::stoi(entry.path().filename().string());
    }
    return -1;
  }
  /// @return what the thread has open.
  [[nodiscard]] static std::vector<std::string> open_in_thread() {
    std::vector<std::string> files;
    for (const auto& task : fs::directory_iterator("/proc/self/task")) {
      std::ifstream name(task.path() / "comm");
      if (std::string text; !std::getline(name, text) || text != "convtrace-file") continue;
      for (const auto& entry : fs::directory_iterator(task.path() / "fd"))
        files.push_back(fs::read_symlink(entry.path()).string());
    }
    return files;
  }
};

}  // namespace

TEST_CASE("file thread: it takes no number from the program", "[format][guarded]") {
  Threaded t;
  const int before = dup(STDOUT_FILENO);
  close(before);
  t.create();
  REQUIRE(t.append("one").ok());
  CHECK(t.number() == -1);
  CHECK(Threaded::open_in_thread() == std::vector<std::string>{t.path});
  const int behind = dup(STDOUT_FILENO);
  CHECK(behind == before);
  close(behind);
}

TEST_CASE("file thread: what its work throws reaches the caller", "[format][guarded]") {
  FileThread thread(FileThread::Table::kPrivate);
  CHECK_THROWS_AS(thread.run([] { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK(FileThread::alive() == 1);
}

TEST_CASE("file thread: the program's closes and opens do not reach its file",
          "[format][guarded]") {
  Threaded t;
  t.create();
  t.file->rest();  // now the program's table has a number, which the thread takes
  REQUIRE(t.append("one").ok());
  CHECK(Threaded::open_in_thread() == std::vector<std::string>{t.path});
  const int number = t.number();
  REQUIRE(number >= 0);
  const int foreign = open((t.folder / "checkpoint").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(dup2(foreign, number) == number);
  fs::rename(t.path, t.folder / "moved");
  REQUIRE(t.append("two").ok());
  CHECK(t.content("moved") == "onetwo");
  CHECK(t.content("checkpoint").empty());
  close(foreign);
  close(number);
}

TEST_CASE("file thread: it ends and starts again without a loss, also when the number is gone",
          "[format][guarded]") {
  Threaded t;
  CHECK(FileThread::alive() == 0);
  t.create();
  for (int turn = 0; turn < 20; ++turn) {
    REQUIRE(t.append("x").ok());
    CHECK(FileThread::alive() == 1);
    t.file->rest();
    CHECK(FileThread::alive() == 0);
    CHECK(Threaded::open_in_thread().empty());
    if (turn % 2 == 1) close(t.number());
  }
  CHECK(t.content("trace") == std::string(20, 'x'));
  close(t.number());
  fs::remove(t.path);
  CHECK(t.append("x").code == StatusCode::kNotFound);
}

TEST_CASE("file thread: it stays where its file would be lost", "[format][guarded]") {
  Threaded t;
  t.create();
  REQUIRE(t.append("one").ok());
  fs::rename(t.path, t.folder / "moved");
  t.file->rest();
  CHECK(FileThread::alive() == 1);
  REQUIRE(t.append("two").ok());
  CHECK(t.content("moved") == "onetwo");
}

TEST_CASE("file thread: pipes of the program end, and its record locks stay", "[format][guarded]") {
  Threaded t;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const int locked = open((t.folder / "locked").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  REQUIRE(fcntl(locked, F_SETLK, &lock) == 0);

  t.create();
  REQUIRE(t.append("one").ok());
  close(ends[1]);
  pollfd end{ends[0], POLLIN, 0};
  CHECK(poll(&end, 1, 5000) == 1);
  CHECK((end.revents & POLLHUP) != 0);
  const pid_t child = fork();
  if (child == 0) {
    struct flock mine {};
    mine.l_type = F_WRLCK;
    _exit(fcntl(locked, F_GETLK, &mine) == 0 && mine.l_type == F_WRLCK ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(ends[0]);
  close(locked);
}

namespace {

/// As some containers do.
bool forbid_private_tables() {
  constexpr unsigned kRefused = SECCOMP_RET_ERRNO | EPERM;
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 2, 0),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                         BPF_STMT(BPF_RET | BPF_K, kRefused)};
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("file thread: where a table of its own is refused, each number is proven",
          "[format][guarded]") {
  const pid_t child = fork();
  if (child == 0) {
    Threaded t;
    if (!forbid_private_tables()) _exit(1);
    t.create();
    if (!t.append("one").ok()) _exit(1);
    // Nothing was closed in the table that it shares.
    if (fcntl(STDOUT_FILENO, F_GETFD) < 0) _exit(2);
    const int number = t.number();
    const int foreign = open((t.folder / "checkpoint").c_str(), O_RDWR | O_CREAT, 0600);
    if (number < 0 || dup2(foreign, number) != number || !t.append("two").ok()) _exit(3);
    const bool right = t.content("trace") == "onetwo" && t.content("checkpoint").empty();
    fs::remove_all(t.folder.path());
    _exit(right ? 0 : 4);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace convtrace::format
