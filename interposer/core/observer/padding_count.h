#pragma once
/// @file padding_count.h
/// How many elements of an integer tensor in host memory are one given index.
///
/// Threads:  plain functions.

#include <cstdint>
#include <vector>

#include "cupti/stats/tile/tensor_view.h"

namespace convtrace::engine {

struct PaddingCount {
  uint64_t count = 0;
  std::vector<uint64_t> rows;  ///< of each part of equal first index, if the tensor is a batch
};

/// @param view  of integers; all its elements are readable.
[[nodiscard]] PaddingCount count_padding(const stats::TensorView& view, int64_t index);

}  // namespace convtrace::engine
