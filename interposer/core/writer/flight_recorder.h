#pragma once
/// @file flight_recorder.h
/// CONVTRACE_RING: events of the last steps are kept in memory and written when something happens.
///
/// A run of weeks leaves a file of what surrounds its NaNs and findings, and nothing else. What is
/// written at a trigger is gone from memory; keeping starts anew.
///
/// Pace:     after a divergence every tensor is a trigger. Each kind has one write a step; what it
///           asks for behind that is written when the next step begins, or at the end.
/// Place:    between queue and trace, on the writer thread. Definitions need no keeping: the trace
///           writes those that its events name.
/// Threads:  one.
/// Memory:   at most kMaxBytes of packed events, beside room for the step under way; then the
///           oldest go, whatever their step. All that goes is counted, and said in the trace.

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

  /// Keeps a copy of `event`. @return the trigger for which to write() now, static storage; null
  /// if there is none.
  const char* keep(const format::Event& event);

  /// Writes what is kept, oldest first, behind a Diagnostic that names `reason` and counts what is
  /// missing. Only the first write of a run is flushed, so that a crash right behind it loses
  /// nothing; the others leave that to the trace's chunks.
  [[nodiscard]] Status write(format::TraceWriter& trace, const char* reason);

  /// Before the trace is closed: writes what still waits for its step to end, says how much no
  /// trigger asked for.
  [[nodiscard]] Status finish(format::TraceWriter& trace);

  /// @return what was written for first: "spike in step 37"; empty if nothing was.
  [[nodiscard]] const std::string& first_trigger() const noexcept { return first_trigger_; }

 private:
  /// Events of one step, packed one behind the other. A long step has several.
  struct Piece {
    uint64_t step = 0;  ///< counted by us: a Step event begins the next
    uint64_t events = 0;
    std::vector<uint64_t> words;
  };

  using Triggers = std::bitset<settings::kTriggerCount>;

  [[nodiscard]] Triggers triggers_of(const format::Event& event);
  /// @return the triggers that are to be written for now.
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
  uint64_t gone_ = 0;         ///< events let go since the last write
  Triggers used_;             ///< have had their write in this step
  Triggers owed_;             ///< came again behind that
  uint32_t step_number_ = 0;  ///< as the program counts
  std::string first_trigger_;
};

}  // namespace convtrace::engine
