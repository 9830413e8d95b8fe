#include "format/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

using format::Level;

/// What is said while it lives goes into a file.
class Log {
 public:
  explicit Log(Level level, uint32_t rank = 0)
      : path_(folder_ / "log"),
        file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), path_, false) {
    configure_log(level, rank, &file_);
  }
  ~Log() { configure_log(Level::kWarning, 0); }
  [[nodiscard]] std::string text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  test::TempDir folder_;
  std::string path_;
  GuardedFile file_;
};

/// Runs `body` in a forked child. @return whether it returned true there.
template <typename Body>
bool holds_in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// A letter for each level that speaks.
std::string speaking(Level level, uint32_t rank) {
  const Log log(level, rank);
  for (const Level each : {Level::kError, Level::kWarning, Level::kInfo, Level::kDebug})
    log_line({1234, each, "site"}, "text");
  std::string letters;
  const std::string text = log.text();
  for (const char letter : {'E', 'W', 'I', 'D'})
    if (text.find(std::string("] ") + letter + " site: CT-1234 text\n") != std::string::npos)
      letters += letter;
  return letters;
}

}  // namespace

TEST_CASE("log: a level says itself and what is graver; other ranks only errors, or all", "[log]") {
  CHECK(speaking(Level::kError, 0) == "E");
  CHECK(speaking(Level::kWarning, 0) == "EW");
  CHECK(speaking(Level::kInfo, 0) == "EWI");
  CHECK(speaking(Level::kDebug, 0) == "EWID");
  CHECK(speaking(Level::kInfo, 3) == "E");
  CHECK(speaking(Level::kDebug, 3) == "EWID");
}

TEST_CASE("log: what the user of run is told depends on no level, and comes once a job", "[log]") {
  {
    const Log log(Level::kError);
    announce("%d steps", 3);
    CHECK(log.text() == "convtrace: 3 steps\n");
  }
  const Log log(Level::kDebug, 1);
  announce("3 steps");
  CHECK(log.text().empty());
}

TEST_CASE("log: a long line is cut and ends, errno stays", "[log]") {
  const Log log(Level::kWarning);
  errno = 42;
  log_line({0, Level::kError, "site"}, "%s", std::string(5000, 'x').c_str());
  CHECK(errno == 42);
  const std::string text = log.text();
  CHECK(text.size() < 600);
  CHECK(text.ends_with("x\n"));
}

TEST_CASE("log: a file that got the number of a closed stderr is not written to", "[log]") {
  const test::TempDir folder;
  const std::string path = folder / "checkpoint";
  CHECK(holds_in_child([&] {
    close(STDERR_FILENO);
    if (open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) != STDERR_FILENO) return false;
    log_line({1, Level::kError, "site"}, "text");
    return true;
  }));
  CHECK(std::filesystem::file_size(path) == 0);
  // A stderr that was only sent elsewhere is one.
  CHECK(holds_in_child([&] {
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (dup2(file, STDERR_FILENO) != STDERR_FILENO) return false;
    log_line({1, Level::kError, "site"}, "text");
    return true;
  }));
  CHECK(std::filesystem::file_size(path) > 0);
}

TEST_CASE("log: a pipe that nobody reads any more kills nobody", "[log]") {
  CHECK(holds_in_child([] {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) != STDERR_FILENO) return false;
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    log_line({1, Level::kError, "site"}, "text");
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 0;
  }));
}

// Last: it uses up what may be said in these ten seconds.
TEST_CASE("log: a message without an end does not fill the disk, errors are always said", "[log]") {
  const Log log(Level::kWarning);
  for (int i = 0; i < 1000; ++i) log_line({1, Level::kWarning, "site"}, "again");
  const std::string text = log.text();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(lines >= 50);
  CHECK(lines <= 200);  // the ten seconds may have ended in between
  log_line({2, Level::kError, "site"}, "the end");
  CHECK(log.text().find(" lines left out) CT-2 the end\n") != std::string::npos);
}

}  // namespace convtrace
