#pragma once
/// @file flight_recorder.h
/// CONVTRACE_RING: keeps the events of the last steps in memory and writes them when a trigger
/// comes.
///
/// A run of weeks leaves a file with the steps around its NaNs and findings, and nothing else.
/// Events that were written are removed from memory.
///
/// Pace:     after a divergence every tensor is a trigger. Each kind of trigger causes one write a
///           step; events that come behind it are written when the next step begins, or at the end.
/// Place:    between queue and trace, on the writer thread. Definitions are not kept here: the
///           trace writes those that its events use.
/// Threads:  one.
/// Memory:   at most kMaxBytes of packed events, beside room for the present step; then the oldest
///           are dropped, whatever their step. The trace says how many were dropped.

#include <bitset>
#include <cstdint>
#include <deque>
#include <vector>

#include "format/base/status.h"
#include "format/file/trace_writer.h"
#include "format/model/events.h"
#include "format/settings/setting_values.h"
#include "interposer/core/writer/loss_watch.h"

namespace convtrace::engine {

class FlightRecorder {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

  explicit FlightRecorder(const settings::Ring& ring, uint64_t max_bytes = kMaxBytes,
                          const settings::Spike& spike = {})
      : ring_(ring), max_bytes_(max_bytes), losses_(spike) {}

  /// Keeps a copy of `event`. @return the trigger because of which the caller must call write()
  /// now, in static storage; null if there is none.
  const char* keep(const format::Event& event);

  /// Writes the kept events, oldest first, behind a Diagnostic that names `reason` and counts the
  /// dropped ones. Only the first write of a run is flushed, so that a crash right after it loses
  /// nothing; later ones wait until their chunk is full.
  [[nodiscard]] Status write(format::TraceWriter& trace, const char* reason);

  /// Before the trace is closed: writes the events that wait for the end of their step, and reports
  /// how many no trigger asked for.
  [[nodiscard]] Status finish(format::TraceWriter& trace);

  /// @return the first trigger and its step, "spike in step 37"; empty if nothing was written.
  [[nodiscard]] const std::string& first_trigger() const noexcept { return first_trigger_; }

 private:
  /// Packed events of one step. A long step has several pieces.
  struct Piece {
    uint64_t step = 0;  ///< number of Step events before it
    uint64_t events = 0;
    std::vector<uint64_t> words;
  };

  using Triggers = std::bitset<settings::kTriggerCount>;

  [[nodiscard]] Triggers triggers_of(const format::Event& event);
  /// @return the triggers that cause a write now.
  Triggers due(const format::Event& event);
  static uint64_t bytes_of(const Piece& piece);
  Piece& piece_for(size_t words);
  void let_go_of_old();

  settings::Ring ring_;
  uint64_t max_bytes_;
  LossWatch losses_;
  std::deque<Piece> pieces_;
  uint64_t bytes_ = 0;
  uint64_t step_ = 0;
  uint64_t gone_ = 0;         ///< events dropped since the last write
  Triggers used_;             ///< triggers that caused a write in this step
  Triggers owed_;             ///< triggers that came again after their write
  uint32_t step_number_ = 0;  ///< as the program counts
  std::string first_trigger_;
};

}  // namespace convtrace::engine
