#pragma once
/// @file tree.h
/// The other parts of the tree that this program was built or installed in.

#include <filesystem>
#include <string>

namespace convtrace::tools {

/// @param relative  below the folder that holds bin/. @return the path; empty if it is not there.
[[nodiscard]] inline std::string in_tree(const char* relative) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = self.parent_path().parent_path() / relative;
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

}  // namespace convtrace::tools
