#pragma once
/// @file live_wait.h
/// Waits while another process writes a trace: for more data, for the end of that process, or for
/// Ctrl-C.
///
/// Why poll: a shared filesystem does not report that a file grows.
/// Threads:  one. Takes over SIGINT and SIGTERM of the process.
/// Errors:   none. A writer that cannot be watched (another host, no permission) counts as running
///           until the trace is closed.

#include "format/model/meta.h"

namespace convtrace::tools {

class LiveWait {
 public:
  LiveWait();
  ~LiveWait();
  LiveWait(const LiveWait&) = delete;
  LiveWait& operator=(const LiveWait&) = delete;

  /// Waits a tenth of a second, or less if something happens.
  /// @param writer  META of the trace, which names the process that writes it. Read until it does.
  void wait(const format::TraceMeta& writer) { look(writer, 100); }
  /// Looks whether the process has ended, without waiting.
  void look(const format::TraceMeta& writer) { look(writer, 0); }

  /// @return whether the writing process has ended, so that the file is final.
  [[nodiscard]] bool writer_gone() const { return writer_gone_; }
  /// @return whether the user has pressed Ctrl-C.
  [[nodiscard]] static bool interrupted();

 private:
  void find(const format::TraceMeta& writer);
  void look(const format::TraceMeta& writer, int most_ms);

  int process_ = -1;  ///< pidfd of the writer
  bool looked_for_ = false;
  bool writer_gone_ = false;
};

}  // namespace convtrace::tools
