#pragma once
/// @file output.h
/// Buffered standard output for data, which ends quietly when its reader has closed the pipe.
///
/// `convtrace show TRACE | head` must end early and without a message, but a full disk must not
/// look like success.
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

  /// Writes the buffer, for a person who is watching.
  void flush();

  /// @return whether lines can still be written.
  [[nodiscard]] bool usable() const { return error_ == 0; }

  /// Writes the buffer. @return `code`; kFailure, after a line on stderr, if data was lost for
  /// another reason than a closed pipe.
  [[nodiscard]] ExitCode finish(ExitCode code);

 private:
  std::string buffer_;
  int fd_;
  int error_ = 0;  ///< errno of the first write that failed
};

}  // namespace convtrace::tools
