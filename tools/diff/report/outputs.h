#pragma once
/// @file outputs.h
/// The files of the reports. A report appears under its name when it is whole: until then it is
/// written beside it, and what is unfinished goes away with the program, also after Ctrl-C.
///
/// Threads:  one owner thread; remove_unfinished_files() may be called in a signal handler.
/// Errors:   complaints go to `err`; see failed().

#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace convtrace::diff {

class Outputs {
 public:
  /// @param out  what "-" means.
  Outputs(std::ostream& out, std::ostream& err);
  ~Outputs();

  /// @return null when `path` is empty, or when it cannot be opened, is a trace, or has a report.
  std::ostream* open(const std::string& path);
  /// Where the report for people goes.
  [[nodiscard]] std::ostream& people() { return stdout_taken_ ? err_ : out_; }
  [[nodiscard]] bool stdout_taken() const { return stdout_taken_; }
  /// Gives every report its name. To be done before anything is printed: who reads that may go
  /// away.
  void finish();
  void flush();
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  struct File;

  void fail(const std::string& why);

  std::ostream& out_;
  std::ostream& err_;
  std::vector<std::unique_ptr<File>> files_;
  bool stdout_taken_ = false;
  bool failed_ = false;
};

/// Async-signal-safe.
void remove_unfinished_files() noexcept;

}  // namespace convtrace::diff
