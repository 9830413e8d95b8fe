#include "tools/cli/doctor/memory_left.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace convtrace::tools::doctor {
namespace fs = std::filesystem;
namespace {

std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // "max"
  return number;
}

/// @return the path in the line of cgroup version 2, "0::/job/step"; "/" if there is none.
fs::path own_path(const fs::path& own_cgroup) {
  std::ifstream file(own_cgroup);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return line.substr(3);
  return "/";
}

}  // namespace

std::optional<uint64_t> memory_left(const fs::path& cgroups, const fs::path& own_cgroup) {
  std::optional<uint64_t> least;
  // A container sees its own group as the root, and may have a path outside of it here.
  for (fs::path group = own_path(own_cgroup);; group = group.parent_path()) {
    const fs::path folder = cgroups / group.relative_path();
    const auto most = number_in(folder / "memory.max");
    const auto used = number_in(folder / "memory.current");
    if (most && used) {
      const uint64_t left = *most - std::min(*most, *used);
      least = std::min(least.value_or(left), left);
    }
    if (!group.has_relative_path()) return least;
  }
}

}  // namespace convtrace::tools::doctor
