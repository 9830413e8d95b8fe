#pragma once
/// @file step_source.h
/// Steps of a run in ascending order: of one trace (step_stream.h), or of all ranks put together
/// (whole_runs.h).

#include "tools/trace/model/record.h"

namespace convtrace::diff {

class StepSource {
 public:
  StepSource() = default;
  StepSource(const StepSource&) = delete;
  StepSource& operator=(const StepSource&) = delete;
  virtual ~StepSource() = default;

  /// @return the next step, or null at the end; valid until pop().
  [[nodiscard]] virtual const StepRecords* peek() = 0;
  virtual void pop() = 0;
};

}  // namespace convtrace::diff
