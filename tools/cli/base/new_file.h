#pragma once
/// @file new_file.h
/// The new trace that a command writes.
///
/// Errors:   one line on stderr.

#include <memory>
#include <string>

#include "format/file/sink.h"

namespace convtrace::tools {

/// The file to write: the path itself, or a file beside it that replaces it when it is complete. It
/// is always a new file, so existing files, such as the trace that is read, stay unchanged.
class NewFile {
 public:
  NewFile(std::string path, bool overwrite);
  /// Removes the file unless it was kept.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// @return null after one line on stderr.
  [[nodiscard]] std::unique_ptr<format::Sink> create();

  /// Call when the file is complete. @return false after one line on stderr.
  [[nodiscard]] bool keep();

 private:
  const std::string path_, written_;
  bool made_ = false, kept_ = false;
};

}  // namespace convtrace::tools
