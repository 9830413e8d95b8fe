#pragma once
/// @file shared_memory.h
/// Finds memory that an op's outputs share with its inputs, and outputs without a known owner.
///
/// Place:    the engine decides with it, at each op, whether to follow the deaths of storages; the
///           judge makes watches and warnings from the same result.
/// Threads:  pure functions.

#include <algorithm>
#include <cstdint>
#include <span>

#include "format/model/events.h"

namespace convtrace::judge {

/// The bytes that two ranges have in common.
struct Overlap {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

[[nodiscard]] inline Overlap overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  const uint64_t first = std::max(a, b);
  const uint64_t end = std::min(a + a_bytes, b + b_bytes);
  return end > first ? Overlap{first, end - first} : Overlap{};
}

[[nodiscard]] inline uint64_t storage_base(const format::Op& tensor) {
  return tensor.address - tensor.value.offset;
}

/// @param end  the op's end event.
/// @return what `output` shares with `input`, unless the op has declared that harmless.
[[nodiscard]] inline Overlap shared_memory(const format::Op& end, const format::Op& output,
                                           const format::Op& input) {
  const bool same_storage = output.value.storage == input.value.storage;
  // Within one storage aliasing is normal (views, in-place ops); it is wrong only if the schema
  // denies it.
  if (same_storage && (!end.has_schema || end.declares_alias)) return {};
  const Overlap data = overlap(output.address, output.bytes, input.address, input.bytes);
  if (same_storage || data.bytes != 0) return data;
  return overlap(storage_base(output), output.storage_bytes, storage_base(input),
                 input.storage_bytes);
}

/// Calls `found(output, input, Overlap)` for each pair of an op's tensors that shares memory.
template <typename Found>
void each_shared(const format::Op& end, std::span<const format::Op> tensors, Found&& found) {
  for (const format::Op& output : tensors) {
    if (output.moment != format::OpMoment::kOutput) continue;
    for (const format::Op& input : tensors) {
      if (input.moment != format::OpMoment::kInput) continue;
      if (const Overlap common = shared_memory(end, output, input); common.bytes != 0)
        found(output, input, common);
    }
  }
}

/// @return whether an output may lie in memory that belongs to none of the inputs: its allocator
/// reports and does not know the memory (another library's, or freed before the op returned), or its
/// storage cannot be resized.
[[nodiscard]] inline bool is_unowned(const format::Op& output,
                                     std::span<const format::Op> tensors) {
  if (output.moment != format::OpMoment::kOutput || !output.frees_reported || output.bytes == 0 ||
      (output.value.generation != 0 && !output.borrows)) {
    return false;
  }
  return std::ranges::none_of(tensors, [&output](const format::Op& other) {
    return other.moment == format::OpMoment::kInput && other.value.storage == output.value.storage;
  });
}

}  // namespace convtrace::judge
