#pragma once
/// @file tree.h
/// Finds other files of the tree in which this program was built or installed.

#include <sys/auxv.h>

#include <filesystem>
#include <string>

namespace convtrace::tools {

/// @param relative  to the folder that contains bin/. @return the path; "" if there is no such
/// file.
[[nodiscard]] inline std::string in_tree(const char* relative) {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {  // no /proc is mounted: the name by which the program was executed
    const auto* const name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    self = std::filesystem::canonical(name != nullptr ? name : "", error);
  }
  const auto path = self.parent_path().parent_path() / relative;
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

}  // namespace convtrace::tools
