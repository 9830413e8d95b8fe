#pragma once
/// @file freed_memory.h
/// Finds values that were read from freed memory, in a run with CONVTRACE_POISON.
///
/// Poison fills freed memory with 0xFF (interposer/preload/poison.h). In floats of 16 bits and more
/// this is a NaN that no processor produces, and that arithmetic passes on unchanged. In bf16 it is
/// no evidence: PyTorch's conversion on CPUs turns every NaN into this one.
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
