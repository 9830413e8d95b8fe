#pragma once
/// @file live_wait.h
/// Waits while somebody else writes a trace: for more of it, for the end of its writer, for Ctrl-C.
///
/// Why poll: a file on a shared filesystem gives no notice of its growth.
/// Threads:  one. Takes over SIGINT and SIGTERM of the process.
/// Errors:   none: where the writer cannot be watched (another host, no permission), it counts as
///           running until the trace is closed.

#include "format/model/meta.h"

namespace convtrace::tools {

class LiveWait {
 public:
  LiveWait();
  ~LiveWait();
  LiveWait(const LiveWait&) = delete;
  LiveWait& operator=(const LiveWait&) = delete;

  /// Waits a tenth of a second, or less when something happens.
  /// @param writer  META of the trace: which process writes it. Read until it names one.
  void wait(const format::TraceMeta& writer);

  /// @return whether the writing process was seen to be gone: what is in the file is all there is.
  [[nodiscard]] bool writer_gone() const { return writer_gone_; }
  /// @return whether the person has seen enough (Ctrl-C).
  [[nodiscard]] static bool interrupted();

 private:
  void find(const format::TraceMeta& writer);

  int process_ = -1;  ///< pidfd of the writer
  bool looked_for_ = false;
  bool writer_gone_ = false;
};

}  // namespace convtrace::tools
