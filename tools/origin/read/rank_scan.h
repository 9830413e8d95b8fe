#pragma once
/// @file rank_scan.h
/// Converts the events of a rank to the entries of its queue.
///
/// Rule:     a NaN or a positive infinity is bad; a negative infinity alone is one in a gradient, a
///           parameter or a loss, since masks of attentions consist of them. What an op gives back
///           unwritten (`empty`) and whole allocations are passed over: their content is arbitrary.
/// Threads:  one.

#include <array>

#include "format/model/definitions.h"
#include "format/model/events.h"
#include "tools/origin/read/rank_queue.h"
#include "tools/trace/read/shared_names.h"

namespace convtrace::origin {

class RankScan {
 public:
  /// @param names  of the job; borrowed.
  explicit RankScan(format::Definitions& names) : names_(names), shared_(names) {}

  /// @param texts  of the trace whose events follow. @param queue  gets them.
  void begin(const format::Definitions& texts, RankQueue& queue);
  void take(const format::Event& event);

 private:
  using Slot = diff::SharedNames::Slot;
  /// An input of a module or op, as evidence about the values made of it.
  struct Input {
    format::Place place;
    format::StringId op, slot;
    bool finite = false;
    double largest = 0;
  };

  void take(const format::Collective& event);
  void take(const format::Fact& event);
  void see_ddp(const Call& call);
  void take(const format::TensorStats& event);
  void take_value(const format::TensorStats& event, const Slot& slot, bool bad);
  void take_local(const format::TensorStats& event, const Slot& slot, uint32_t step, bool bad);
  void take_parameter(const format::TensorStats& event, const Slot& slot, uint32_t step, bool bad);
  void take_bad(const format::TensorStats& event, const Slot& slot, uint32_t step);
  [[nodiscard]] Value digest(const format::TensorStats& event, const Slot& slot) const;
  [[nodiscard]] uint32_t fingerprint(const format::TensorStats& event);
  [[nodiscard]] uint32_t step_of(const format::EventHeader& header);
  [[nodiscard]] Call* call_of(uint64_t id);
  format::StringId own(format::StringId local) { return shared_.of(*texts_, local); }

  format::Definitions& names_;
  const format::Definitions* texts_ = nullptr;
  RankQueue* queue_ = nullptr;
  diff::SharedNames shared_;
  std::array<Input, 64> inputs_{};  ///< the last ones
  size_t next_input_ = 0;
  uint64_t last_id_ = 0;
  format::StringId checked_;  ///< group in which the numbers of parameters were just gathered
  StepCounts* counts_ = nullptr;
  uint32_t counted_step_ = format::kNoStep;
};

/// @return whether a value has NaN or infinities that are no mask.
[[nodiscard]] bool is_bad(const format::TensorStats& event, diff::Role role);

}  // namespace convtrace::origin
