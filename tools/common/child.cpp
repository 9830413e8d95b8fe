#include "tools/common/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace convtrace::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxAnswer = 1U << 20;

[[noreturn]] void become(const std::vector<std::string>& words, int out) {
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, 0);
  dup2(out, 1);
  dup2(nothing, 2);
  unsetenv("LD_PRELOAD");
  (void)execute(words);
  _exit(127);
}

/// @return whether the other end was closed in time.
bool read_all(int in, Clock::time_point end, std::string& text) {
  char buffer[4096];
  while (text.size() < kMaxAnswer) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    struct pollfd wait {
      in, POLLIN, 0
    };
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
    const ssize_t got = read(in, buffer, sizeof buffer);
    if (got <= 0) return got == 0;
    text.append(buffer, static_cast<size_t>(got));
  }
  return false;
}

}  // namespace

std::filesystem::path find_program(const std::string& word) {
  std::error_code error;
  const auto usable = [&](const std::filesystem::path& path) {
    return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  if (word.find('/') != std::string::npos)
    return usable(word) ? std::filesystem::path(word) : std::filesystem::path();
  const char* const path_list = std::getenv("PATH");
  std::istringstream folders(path_list == nullptr ? "" : path_list);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::filesystem::path path = std::filesystem::path(folder) / word; usable(path))
      return path;
  return {};
}

std::optional<std::string> answer_of(const std::vector<std::string>& words,
                                     std::chrono::milliseconds limit) {
  int ends[2];
  if (words.empty() || pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) become(words, ends[1]);
  close(ends[1]);
  std::string text;
  const bool whole = child > 0 && read_all(ends[0], Clock::now() + limit, text);
  close(ends[0]);
  if (child <= 0) return std::nullopt;
  if (!whole) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!whole || status != 0) return std::nullopt;
  return text;
}

int execute(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return errno;
}

}  // namespace convtrace::tools
