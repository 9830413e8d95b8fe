#pragma once
/// @file output.h
/// Standard output for data: buffered, and at peace with a reader that has seen enough.
///
/// `convtrace show TRACE | head` must end early and quietly, but a full disk must not look like
/// success.
///
/// Threads:  one.
/// Errors:   remembered: ask usable() between records and finish() at the end.

#include <string>
#include <string_view>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

class Output {
 public:
  /// Ignores SIGPIPE from now on. @param fd borrowed.
  explicit Output(int fd = 1);

  /// Adds `text` and a line end.
  void line(std::string_view text);

  /// Writes what is buffered: somebody is watching.
  void flush();

  /// @return whether more lines would be read.
  [[nodiscard]] bool usable() const { return error_ == 0; }

  /// Writes what is buffered. @return `code`, or kFailure after a line on stderr when data was
  /// lost for another reason than a closed pipe.
  [[nodiscard]] ExitCode finish(ExitCode code);

 private:
  std::string buffer_;
  int fd_;
  int error_ = 0;  ///< errno of the first write that failed
};

}  // namespace convtrace::tools
