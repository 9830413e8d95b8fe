#pragma once
/// @file outputs.h
/// The files of the reports. A report gets its name when it is complete; until then it is written
/// beside that name. Unfinished files are removed when the program ends, also after Ctrl-C.
///
/// Threads:  one owner thread; its files are also removed by a signal handler.
/// Errors:   written to `err`; see failed().

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tools/common/complaints.h"

namespace convtrace::diff {

class Outputs {
 public:
  /// @param program  begins error messages. @param out  the stream for "-".
  Outputs(std::string program, std::ostream& out, std::ostream& err);
  ~Outputs();

  /// @return null if `path` is empty, cannot be opened, is a trace, or already has a report.
  std::ostream* open(const std::string& path);
  /// The stream of the report for people.
  [[nodiscard]] std::ostream& people() { return stdout_taken_ ? err_ : out_; }
  [[nodiscard]] bool stdout_taken() const { return stdout_taken_; }
  /// Gives every report its name. Call before anything is printed, since the reader of a pipe may
  /// end and take this process with it.
  void finish();
  void flush();
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  struct File;

  void fail(tools::MessageId id, const std::string& why);

  std::string program_;
  std::ostream& out_;
  std::ostream& err_;
  std::vector<std::unique_ptr<File>> files_;
  bool stdout_taken_ = false;
  bool failed_ = false;
};

/// From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE remove unfinished files before they end the
/// process. A signal that is ignored stays ignored, as nohup wants it.
void remove_unfinished_files_on_signals();

}  // namespace convtrace::diff
