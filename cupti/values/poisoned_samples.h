#pragma once
/// @file poisoned_samples.h
/// Counts the samples of a tensor that still hold the pattern of CONVTRACE_POISON.
///
/// Why:      no kernel counts them. Only floats are counted: the pattern is a NaN that no
///           computation produces, while an integer may have it by chance.
/// Threads:  pure function.

#include <cstdint>
#include <cstring>
#include <span>

#include "cupti/memory/quarantine.h"
#include "format/model/dtype.h"

namespace convtrace::cupti {

/// @param samples  raw elements.
[[nodiscard]] inline uint64_t count_poisoned(std::span<const std::byte> samples,
                                             format::DType dtype) noexcept {
  using format::DType;
  constexpr uint64_t kPattern = uint64_t{kFreshPattern} << 32 | kFreshPattern;
  const bool halves = dtype == DType::kF16 || dtype == DType::kBF16;
  if (!halves && dtype != DType::kF32 && dtype != DType::kF64) return 0;
  uint64_t found = 0;
  const size_t bytes = format::element_bytes(dtype);
  for (; samples.size() >= bytes; samples = samples.subspan(bytes)) {
    const auto is = [&](const void* pattern) {
      return std::memcmp(samples.data(), pattern, bytes) == 0;
    };
    found += is(&kPattern) || (halves && is(reinterpret_cast<const std::byte*>(&kPattern) + bytes));
  }
  return found;
}

}  // namespace convtrace::cupti
