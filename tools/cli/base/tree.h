#pragma once
/// @file tree.h
/// Finds other files of the tree in which this program was built or installed.

#include <filesystem>
#include <string>

namespace convtrace::tools {

/// @param relative  to the folder that contains bin/. @return the path; "" if there is no such
/// file.
[[nodiscard]] inline std::string in_tree(const char* relative) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = self.parent_path().parent_path() / relative;
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

}  // namespace convtrace::tools
