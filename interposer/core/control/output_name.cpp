#include "interposer/core/control/output_name.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "format/settings/launcher_ranks.h"

namespace convtrace::engine {
namespace {

std::optional<uint32_t> number(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  uint32_t value = 0;
  const char* const end = text + strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

/// @return the descriptor of a new file that no other process can have opened, or -1 with errno.
int create_locked(const std::string& path) {
  int fd = -1;
  do {
    fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EINTR);
  // On a filesystem without locks a sibling gets no name of its own, but the trace is written.
  if (fd >= 0) flock(fd, LOCK_SH | LOCK_NB);
  return fd;
}

/// Creates the folder in CONVTRACE_OUTPUT if only its last level is missing; a longer missing path
/// is probably a mistake. Ranks that start together may both try.
bool create_parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return false;
  return mkdir(path.substr(0, slash).c_str(), 0777) == 0 || errno == EEXIST;
}

enum class Owner { kNobody, kLivingProcess, kNotAFile };

Owner lock_state(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return Owner::kNobody;
  if (!S_ISREG(status.st_mode)) return Owner::kNotAFile;
  // For reading and writing: an exclusive lock over NFS needs a file that is open for writing.
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return Owner::kNobody;
  const bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return held ? Owner::kLivingProcess : Owner::kNobody;
}

bool just_created(const std::string& path) {
  struct stat status;
  timespec now{};
  if (stat(path.c_str(), &status) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0) return false;
  return now.tv_sec - status.st_mtim.tv_sec <= 1;
}

/// Ranks of a job start together, so another rank may have created its file and not locked it yet.
Owner owner_of(const std::string& path) {
  Owner owner = lock_state(path);
  for (int attempt = 0; owner == Owner::kNobody && attempt < 5 && just_created(path); ++attempt) {
    constexpr timespec kPause{0, 20'000'000};
    nanosleep(&kPause, nullptr);
    owner = lock_state(path);
  }
  return owner;
}

/// @return the time at which this process began, before any exec, in seconds of CLOCK_REALTIME, or
/// 0.
int64_t process_start() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text, '\0');
  std::istringstream fields(text.substr(text.rfind(')') + 1));  // the name may contain anything
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  int64_t ticks = 0;
  timespec real{};
  timespec boot{};
  if (!(fields >> ticks) || clock_gettime(CLOCK_REALTIME, &real) != 0 ||
      clock_gettime(CLOCK_BOOTTIME, &boot) != 0)
    return 0;
  return real.tv_sec - boot.tv_sec + ticks / sysconf(_SC_CLK_TCK);
}

/// @return whether this process created the file before it executed another program (exec).
bool is_own_earlier(const std::string& path, const OutputFacts& facts) {
  struct stat status;
  const int64_t start = process_start();
  const bool named_by_pid = path.find(std::to_string(facts.pid)) != std::string::npos;
  return named_by_pid && start != 0 && stat(path.c_str(), &status) == 0 &&
         status.st_mtim.tv_sec >= start;
}

Status failure(const std::string& path, int error, std::string& why) {
  if (error == EEXIST) {
    why = path +
          " exists; remove it, choose another CONVTRACE_OUTPUT (%p in it is the process) or set "
          "CONVTRACE_OVERWRITE=1";
    return Status::make(StatusCode::kAlreadyExists, "open output", error);
  }
  why = "cannot create " + path + ": " + strerror(error) +
        "; set CONVTRACE_OUTPUT to a writable place";
  return Status::make(StatusCode::kIoError, "open output", error);
}

}  // namespace

Rank rank_from_environment(const char* (*get_env)(const char* name)) {
  for (const auto& [rank_name, size_name] : settings::kLauncherRanks) {
    const std::optional<uint32_t> rank = number(get_env(rank_name));
    if (!rank) continue;
    const std::optional<uint32_t> size = number(get_env(size_name));
    return Rank{*rank, std::max(size.value_or(1), *rank + 1), size.has_value(), true};
  }
  return Rank{};
}

std::string expand_output(const std::string& pattern, const OutputFacts& facts) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (const char what = pattern[++i]; what) {
      case 'h': path += facts.host; break;
      case 'p': path += std::to_string(facts.pid); break;
      case 'r': path += std::to_string(facts.rank); break;
      case '%': path += '%'; break;
      default: path += '%'; path += what;
    }
  }
  return below(facts.start_folder, path);
}

std::string below(const std::string& folder, std::string_view path) {
  return path.starts_with('/') ? std::string(path) : folder + '/' + std::string(path);
}

std::string name_for_sibling(const std::string& path, const OutputFacts& facts) {
  const size_t slash = path.rfind('/');
  size_t dot = path.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash + 2))
    dot = path.size();
  const std::string tag = ".r" + std::to_string(facts.rank) + "." + std::to_string(facts.pid);
  return path.substr(0, dot) + tag + path.substr(dot);
}

Result<OutputFile> open_output(const std::string& path, bool overwrite, const OutputFacts& facts,
                               std::string& why) {
  OutputFile file{create_locked(path), path, {}};
  if (file.fd < 0 && errno == ENOENT && create_parent(path)) file.fd = create_locked(path);
  if (file.fd >= 0) return file;
  if (errno != EEXIST) return failure(path, errno, why);
  switch (owner_of(path)) {
    case Owner::kLivingProcess:
      file.path = name_for_sibling(path, facts);
      file.notice = path + " is being written by another process; this one writes " + file.path;
      break;
    case Owner::kNobody:
      if (is_own_earlier(path, facts)) {
        file.path = name_for_sibling(path, facts);
        break;
      }
      if (!overwrite) return failure(path, EEXIST, why);
      if (unlink(path.c_str()) != 0) return failure(path, errno, why);
      break;
    case Owner::kNotAFile:
      why = path + " is not a regular file; choose another CONVTRACE_OUTPUT";
      return Status::make(StatusCode::kAlreadyExists, "open output", EEXIST);
  }
  file.fd = create_locked(file.path);
  if (file.fd < 0) return failure(file.path, errno, why);
  return file;
}

std::string rename_output(const std::string& from, const std::string& path, bool overwrite,
                          const OutputFacts& facts) {
  for (const std::string& name : {path, name_for_sibling(path, facts)}) {
    if (name == from) break;
    if (overwrite && name == path && owner_of(name) == Owner::kNobody) unlink(name.c_str());
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) == 0)
      return name;
    if (errno != EEXIST) break;
  }
  return from;
}

}  // namespace convtrace::engine
