#pragma once
/// @file freed_memory.h
/// Whether a value was read out of freed memory, in a run with CONVTRACE_POISON.
///
/// Poison fills freed memory with 0xFF (interposer/preload/poison.h). In floats of 16 bits and more
/// that is a NaN which no processor produces, and which arithmetic passes on as it is. In bf16 it says
/// nothing: PyTorch's conversion on CPUs makes this NaN of every other one.
///
/// Threads:  pure functions.

#include <algorithm>
#include <cstddef>
#include <span>

#include "format/model/dtype.h"

namespace convtrace::tools {

/// @param samples  raw elements of the value.
[[nodiscard]] inline bool holds_freed_memory(format::DType dtype,
                                             std::span<const std::byte> samples) {
  const size_t size = format::element_bytes(dtype);
  if (format::number_class(dtype) != format::NumberClass::kFloat || size < 2 ||
      dtype == format::DType::kBF16)
    return false;
  for (; samples.size() >= size; samples = samples.subspan(size))
    if (std::ranges::all_of(samples.first(size), [](std::byte b) { return b == std::byte{0xFF}; }))
      return true;
  return false;
}

}  // namespace convtrace::tools
