#pragma once
/// @file step_stream.h
/// Reads one trace step by step, in ascending order, with a few steps in memory.
///
/// A step comes out when it is whole (open_steps.h); values that arrive later are counted. Within a
/// step, records are sorted by time, which is the order in which they happened.
///
/// Place:    rank_diff.h reads the two traces of a rank (and repetitions) with it, in lockstep.
/// Threads:  not thread-safe.
/// Memory:   three steps; findings up to kMaxFindings.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "format/model/definitions.h"
#include "reader/trace_reader.h"
#include "tools/diff/model/findings.h"
#include "tools/diff/model/step_offset.h"
#include "tools/diff/read/alias_patterns.h"
#include "tools/diff/read/equal_steps.h"
#include "tools/diff/read/launch_keys.h"
#include "tools/diff/read/moved_parameters.h"
#include "tools/diff/read/step_source.h"
#include "tools/trace/model/losses.h"
#include "tools/trace/model/record.h"
#include "tools/trace/read/open_steps.h"
#include "tools/trace/read/shared_names.h"

namespace convtrace::diff {

class StepStream final : public StepSource {
 public:
  /// @param names, launches  shared by all streams of a diff; must outlive the stream.
  /// @param shift  added to the numbers of the trace's steps.
  StepStream(std::unique_ptr<reader::TraceReader> reader, format::Definitions& names,
             LaunchKeys& launches, StepShift shift = {});

  [[nodiscard]] const StepRecords* peek() override;
  void pop() override;

  /// Returns only the events of each step that `equal` wants, and reads no more than necessary.
  /// @param equal  must outlive the stream. @param side  the run of this trace.
  void leave_out(const EqualSteps& equal, Side side);

  /// Parameters get other names. Call it before the first step is read.
  void move_parameters(const std::vector<ScopeRename>& rules) { moved_.use(rules); }

  [[nodiscard]] const reader::TraceReader& reader() const { return *reader_; }
  [[nodiscard]] StepShift shift() const { return shift_; }
  /// The findings; complete after the last step.
  [[nodiscard]] const Findings& findings() const { return findings_; }
  /// The patterns of the steps that both runs read.
  [[nodiscard]] const AliasPatterns& alias_patterns() const { return patterns_; }
  [[nodiscard]] const Losses& losses() const { return losses_; }
  /// Number of the trace's events that were read.
  [[nodiscard]] uint64_t position() const { return position_; }
  /// Number of values that arrived after their step had come out, and were not compared.
  [[nodiscard]] uint64_t late_values() const { return late_values_; }

 private:
  struct Op {
    bool leaves_unwritten = false, is_fused = false, is_loss = false;
  };

  /// A launch, and the launch that followed it last time: programs repeat themselves.
  struct Followed {
    format::KernelId kernel;
    format::Place place;
    uint32_t launch = 0;
  };

  /// The key of a value, with its occurrence.
  struct Counted {
    RecordKey key;
    uint32_t thread = 0;
  };

  bool read_one();
  void put_in_order(StepRecords& step);
  template <typename Kind>
  bool takes(uint32_t step);
  StepRecords* open_step(uint32_t step);
  void take(const format::TensorStats& event);
  void take(const format::Launch& event);
  void take(const format::Finding& event);
  void take(const format::Op& event);
  format::StringId shared(format::StringId local);
  format::StringId shared_family(format::KernelId local);
  format::StringId operand_before(format::StringId slot);
  const Op& op(format::StringId local);

  std::unique_ptr<reader::TraceReader> reader_;
  format::Definitions& names_;
  LaunchKeys& launches_;
  StepShift shift_;
  MovedParameters moved_;
  OpenSteps<StepRecords> open_;
  std::optional<StepRecords> ready_;
  std::vector<Counted> counted_;  ///< the counters of the last returned step
  bool at_end_ = false;
  Findings findings_;
  AliasPatterns patterns_;
  Losses losses_;
  const EqualSteps* equal_ = nullptr;
  Side side_ = Side::kBase;
  // The step of the last event, and the kinds of events taken from it.
  uint32_t step_ = format::kNoStep;
  reader::KindSet taken_ = reader::kAllKinds;
  uint64_t position_ = 0;
  uint64_t late_values_ = 0;
  SharedNames shared_;
  std::vector<std::optional<format::StringId>> before_;  ///< by slots of the file
  std::vector<std::optional<Op>> ops_;                   ///< by the id of the file
  std::vector<Followed> followed_;                       ///< by launch
  uint32_t last_launch_ = 0;
};

}  // namespace convtrace::diff
