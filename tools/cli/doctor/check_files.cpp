#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "format/settings/launcher_ranks.h"
#include "tools/cli/base/tree.h"
#include "tools/cli/doctor/check.h"
#include "tools/cli/doctor/memory_left.h"
#include "tools/common/text.h"

namespace convtrace::tools::doctor {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMiB = 1ULL << 20;
constexpr uint64_t kLittleSpace = 1024 * kMiB, kTooLittleSpace = 64 * kMiB;
constexpr uint64_t kLittleMemory = 512 * kMiB;  // queue, chunks and PyTorch's own growth

std::string mib_text(uint64_t bytes) { return count_text(bytes / kMiB) + " MiB"; }

/// @return the folder of an output name, up to its first placeholder.
fs::path folder_of(const std::string& output) {
  const std::string known = output.substr(0, output.find('%'));
  const size_t slash = known.rfind('/');
  return slash == std::string::npos ? fs::path(".") : fs::path(known.substr(0, slash + 1));
}

/// @return the folder, or its parent if it does not exist: the engine creates one level.
fs::path existing_part(fs::path folder) {
  std::error_code error;
  folder = fs::absolute(folder, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return fs::exists(folder, error) ? folder : folder.parent_path();
}

/// @return 0 if a file can be opened for appending, else errno.
int refusal_to_append(const fs::path& file) {
  std::error_code error;
  const fs::path folder = fs::absolute(file, error).parent_path();
  const fs::path place = fs::exists(file, error) ? file : folder;
  if (fs::is_directory(file, error)) return EISDIR;
  return access(place.c_str(), W_OK) == 0 ? 0 : errno;
}

bool has_launcher_rank() {
  return std::ranges::any_of(settings::kLauncherRanks, [](const settings::LauncherRank& launcher) {
    return !variable(launcher.rank).empty();
  });
}

/// Checks the library's entry in a preload list as the loader reads it.
void check_preload(const std::string& library, std::vector<Line>& lines) {
  const std::string list = variable("LD_PRELOAD");
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find_first_of(": ", begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    begin = end + 1;
    if (entry.find("libconvtrace.so") == std::string::npos) continue;
    std::error_code error;
    if (entry.front() != '/') {
      lines.push_back({"preload", Level::kFail, "LD_PRELOAD has the relative path " + entry,
                       "a program that changes its folder does not find it; use " + library});
    } else if (!fs::exists(entry, error)) {
      lines.push_back({"preload", Level::kFail,
                       "LD_PRELOAD names " + entry + ", which is not there", "use " + library});
    } else {
      lines.push_back({"preload", Level::kOk, "LD_PRELOAD has " + entry, ""});
    }
    return;
  }
  lines.push_back({"preload", Level::kOk, "to be used: LD_PRELOAD=" + library, ""});
}

}  // namespace

void check_tree(const Subject&, std::vector<Line>& lines) {
  for (const char* part : {"lib/libconvtrace.so", "lib/libconvtrace-core.so",
                           "share/convtrace/observer/sitecustomize.py"}) {
    if (!in_tree(part).empty()) continue;
    lines.push_back({"tree", Level::kFail, std::string(part) + " is not beside this program",
                     "install the whole tree: cmake --install, or tools/package"});
    return;
  }
  const std::string library = in_tree("lib/libconvtrace.so");
  lines.push_back({"tree", Level::kOk, "library, engine and observer are there", ""});
  if (library.find_first_of(": ") != std::string::npos) {
    lines.push_back({"preload", Level::kFail,
                     library + " cannot be preloaded: the list is split at spaces and colons",
                     "move the tree to a path without them"});
  } else {
    check_preload(library, lines);
  }
}

void check_settings(const Subject& subject, std::vector<Line>& lines) {
  const size_t before = lines.size();
  const std::vector<std::string>& problems = subject.settings.problems;
  for (const std::string& problem : problems)
    lines.push_back(
        {"settings", Level::kFail, problem, "the program would run untraced: correct it"});
  if (!problems.empty()) return;
  if (!subject.settings.settings.enabled) {
    lines.push_back({"settings", Level::kWarn, "CONVTRACE=0 turns tracing off", "unset CONVTRACE"});
    return;
  }
  if (subject.settings.settings.mode == settings::Mode::kOff) {
    lines.push_back({"settings", Level::kWarn, "mode off: nothing would be traced",
                     "unset CONVTRACE_MODE, or take launches, hash, stats or snapshot"});
    return;
  }
  for (const std::string& warning : subject.settings.warnings)
    lines.push_back(
        {"settings", Level::kWarn, warning, "leave it out, or give what it belongs to"});
  if (!subject.settings.settings.ranks.contains(0) && !has_launcher_rank()) {
    lines.push_back({"settings", Level::kWarn,
                     "CONVTRACE_RANKS leaves out rank 0, which a process without a launcher is",
                     "right under torchrun, srun or mpirun; else unset it"});
  }
  const std::string& log_file = subject.settings.settings.log_file;
  if (const int why = log_file.empty() ? 0 : refusal_to_append(log_file); why != 0) {
    lines.push_back({"settings", Level::kWarn,
                     "CONVTRACE_LOG_FILE " + log_file + ": " + std::strerror(why),
                     "name a file in a folder that can be written to; else stderr is used"});
  }
  if (lines.size() == before)
    lines.push_back({"settings", Level::kOk, "every CONVTRACE_ variable is understood", ""});
}

void check_output(const Subject& subject, std::vector<Line>& lines) {
  const settings::Settings& wanted = subject.settings.settings;
  const fs::path folder = existing_part(folder_of(wanted.output));
  std::error_code error;
  const int why = !fs::exists(folder, error)                 ? ENOENT
                  : !fs::is_directory(folder, error)         ? ENOTDIR
                  : access(folder.c_str(), W_OK | X_OK) != 0 ? errno
                                                             : 0;
  if (why != 0) {
    lines.push_back({"output", Level::kFail, folder.string() + ": " + std::strerror(why),
                     "set CONVTRACE_OUTPUT to a folder that can be written to"});
    return;
  }
  if (fs::is_directory(wanted.output, error)) {
    lines.push_back(
        {"output", Level::kFail, wanted.output + " is a folder",
         "add the name of a file: " + (fs::path(wanted.output) / "%r-%p.ctrace").string()});
    return;
  }
  const bool taken =
      wanted.output.find('%') == std::string::npos && fs::exists(wanted.output, error);
  if (taken && !wanted.overwrite) {
    lines.push_back({"output", Level::kFail, wanted.output + " exists: no trace would be written",
                     "set CONVTRACE_OVERWRITE=1 or another CONVTRACE_OUTPUT"});
  } else {
    lines.push_back({"output", Level::kOk, "traces go to " + wanted.output, ""});
  }
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) return;
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  const Level level = free_bytes < kTooLittleSpace ? Level::kFail
                      : free_bytes < kLittleSpace  ? Level::kWarn
                                                   : Level::kOk;
  lines.push_back(
      {"space", level, mib_text(free_bytes) + " free in " + folder.string(),
       level == Level::kOk ? "" : "a long run needs more: free some, or use CONVTRACE_RING"});
}

void check_limits(const Subject& subject, std::vector<Line>& lines) {
  struct rlimit limit {};
  const size_t before = lines.size();
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    lines.push_back({"limits", Level::kWarn,
                     "files may have " + mib_text(limit.rlim_cur) + " at most",
                     "a trace ends there: ulimit -f unlimited, or CONVTRACE_MAX_BYTES"});
  }
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    lines.push_back({"limits", Level::kWarn,
                     "address space is limited to " + mib_text(limit.rlim_cur),
                     "CUDA reserves far more than it uses: ulimit -v unlimited"});
  }
  const auto left = memory_left(subject.cgroups, subject.own_cgroup);
  if (left && *left < kLittleMemory) {
    lines.push_back({"limits", Level::kWarn,
                     "this job or container has " + mib_text(*left) + " of memory left",
                     "give it more, or lower CONVTRACE_SNAPSHOT_MEMORY"});
  }
  if (lines.size() == before) lines.push_back({"limits", Level::kOk, "no limit is in the way", ""});
}

}  // namespace convtrace::tools::doctor
