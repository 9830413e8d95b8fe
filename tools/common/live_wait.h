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

  static constexpr int kMostMs = 100;
  /// Waits `most_ms`, or less if something happens. 0: looks whether the process has ended.
  /// @param writer  META of the trace, which names the process that writes it. Read until it does.
  void wait(const format::TraceMeta& writer, int most_ms = kMostMs);

  /// @return whether the writing process has ended, so that the file is final.
  [[nodiscard]] bool writer_gone() const { return writer_gone_; }
  /// @return whether the user has pressed Ctrl-C.
  [[nodiscard]] static bool interrupted();

 private:
  void find(const format::TraceMeta& writer);

  int process_ = -1;  ///< pidfd of the writer
  bool looked_for_ = false;
  bool writer_gone_ = false;
};

}  // namespace convtrace::tools
