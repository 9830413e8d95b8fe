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

/// @return what root modules take, except for what other modules gave. No content: data that are
/// one number, a single element or whole numbers in a row (positions) alone.
[[nodiscard]] Batch batch_of(const StepValues& step);

}  // namespace convtrace::check
