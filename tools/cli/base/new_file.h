#pragma once
/// @file new_file.h
/// A trace that a command writes.
///
/// Errors:   one line on stderr.

#include <memory>
#include <string>

#include "format/file/sink.h"

namespace convtrace::tools {

/// The file that is written: the path itself, or a file beside it that takes its place when it is
/// whole. It is always made anew, so what anybody else has there, be it the trace that is read, is
/// left alone.
class NewFile {
 public:
  NewFile(std::string path, bool overwrite);
  /// Removes a file that was not kept.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// @return null after one line on stderr.
  [[nodiscard]] std::unique_ptr<format::Sink> create();

  /// The file is whole. @return false after one line on stderr.
  [[nodiscard]] bool keep();

 private:
  const std::string path_, written_;
  bool made_ = false, kept_ = false;
};

}  // namespace convtrace::tools
