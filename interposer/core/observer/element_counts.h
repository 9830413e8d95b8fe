#pragma once
/// @file element_counts.h
/// Counts elements of tensors in host memory: those equal to a padding index, and those that still hold
/// the pattern of CONVTRACE_POISON.
///
/// Threads:  pure functions.
/// Source:   interposer/preload/poison.h, cupti/memory/quarantine.h

#include <cstdint>
#include <cstring>
#include <vector>

#include "cupti/memory/quarantine.h"
#include "cupti/stats/tile/tensor_view.h"

namespace convtrace::engine {

struct PaddingCount {
  uint64_t count = 0;
  std::vector<uint64_t> rows;  ///< for each index of the first dimension, if the tensor is a batch
};

/// @param view  of integers; all its elements are readable.
[[nodiscard]] PaddingCount count_padding(const stats::TensorView& view, int64_t index);

/// Counts whole words of 8 bytes that hold the pattern, because one integer or 8-bit float may be
/// equal to it by chance.
inline uint64_t count_poisoned_words(const stats::TensorView& view) {
  int64_t dense = 1;
  for (uint32_t dim = view.rank; dim-- > 0; dense *= view.shape[dim]) {
    if (view.shape[dim] != 1 && view.strides[dim] != dense) return 0;
  }
  constexpr uint64_t kWord = sizeof(uint64_t);
  const uint64_t pattern = uint64_t{cupti::kFreshPattern} << 32 | cupti::kFreshPattern;
  const auto* const bytes = static_cast<const std::byte*>(view.data);
  const uint64_t element = format::element_bytes(view.dtype);
  const uint64_t end = static_cast<uint64_t>(dense) * element;
  uint64_t found = 0;
  for (uint64_t at = -reinterpret_cast<uintptr_t>(bytes) % kWord; at + kWord <= end; at += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, kWord);
    if (word == pattern) ++found;
  }
  return found * kWord / element * format::values_in_element(view.dtype);
}

/// @return the number of elements; of integers and 8-bit floats only those of dense tensors, in
/// whole words of 8 bytes.
[[nodiscard]] inline uint64_t count_poisoned(stats::TensorView view) {
  using format::DType;
  constexpr auto kPattern = static_cast<int32_t>(cupti::kFreshPattern);
  if (stats::element_count(view) == 0) return 0;
  switch (view.dtype) {
    case DType::kF16:
    case DType::kBF16:
      view.dtype = DType::kI16;
      return count_padding(view, static_cast<int16_t>(kPattern)).count +
             count_padding(view, kPattern >> 16).count;
    case DType::kF32: view.dtype = DType::kI32; return count_padding(view, kPattern).count;
    case DType::kF64:
      view.dtype = DType::kI64;
      return count_padding(view, int64_t{kPattern} << 32 | cupti::kFreshPattern).count;
    default: return count_poisoned_words(view);
  }
}

}  // namespace convtrace::engine
