#pragma once
/// @file poison_count.h
/// Elements that still hold what CONVTRACE_POISON filled their memory with.
///
/// Threads:  pure function.
/// Source:   interposer/stub/poison.h

#include "interposer/engine/padding_count.h"

namespace convtrace::engine {

/// @return 0 for integers: of them -1 is an ordinary value.
[[nodiscard]] inline uint64_t count_poisoned(stats::TensorView view) {
  using format::DType;
  if (view.dtype == DType::kF16 || view.dtype == DType::kBF16) {
    view.dtype = DType::kI16;
  } else if (view.dtype == DType::kF32) {
    view.dtype = DType::kI32;
  } else if (view.dtype == DType::kF64) {
    view.dtype = DType::kI64;
  } else {
    return 0;
  }
  return count_padding(view, -1).count;
}

}  // namespace convtrace::engine
