#pragma once
/// @file batch.h
/// The signature of a training step's data.
///
/// Threads:  pure function.

#include <cstdint>

#include "tools/check/model/step_values.h"

namespace convtrace::check {

struct Batch {
  uint64_t signature = 0;          ///< over the hashes of all inputs of root modules
  const Value* content = nullptr;  ///< one that is not the same in every step of most programs
};

/// @return the inputs of root modules that are no outputs of other modules. Without content if all
/// are one number, a single element or consecutive integers (positions).
[[nodiscard]] Batch batch_of(const StepValues& step);

}  // namespace convtrace::check
