#pragma once
/// @file padding_count.h
/// Counts the elements of an integer tensor in host memory that are equal to a given index.
///
/// Threads:  plain functions.

#include <cstdint>
#include <vector>

#include "cupti/stats/tile/tensor_view.h"

namespace convtrace::engine {

struct PaddingCount {
  uint64_t count = 0;
  std::vector<uint64_t> rows;  ///< for each index of the first dimension, if the tensor is a batch
};

/// @param view  of integers; all its elements are readable.
[[nodiscard]] PaddingCount count_padding(const stats::TensorView& view, int64_t index);

}  // namespace convtrace::engine
