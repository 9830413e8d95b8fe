#pragma once
/// @file weight_mark.h
/// A fingerprint of a recorded parameter, which shows later whether the program has written to it: the
/// number of its storage, torch's count of writes, and a digest of some elements.
///
/// Torch does not count writes through `.data`, through numpy, or by another process; the digest shows
/// them, except writes of few elements and writes to device memory. Memory that torch has not allocated
/// itself (a mapped file, an array) may be unmapped while the parameter still exists.
///
/// Place:    under hot_path.h; Owner.mark of calls/naming.py is the reference.
/// Threads:  those that hold the GIL.

#include <cstdint>

#include "interposer/core/python/tensor_reader.h"

namespace convtrace::python {

/// Number of elements in the digest, evenly spaced from the first to the last.
inline constexpr uint64_t kProbed = 8;
inline constexpr unsigned kStorageBits = 40;

struct WeightMark {
  uint64_t memory = 0;   ///< epoch, and number of the storage in the low bits; 0: never recorded
  uint64_t content = 0;  ///< `_version`, and in the low half a digest of elements, 0 for none
};

/// @param epoch  of the marks that may be compared with this one; not 0.
/// @param is_torchs  whether torch has allocated the memory, which then can be read.
WeightMark mark_of(const TensorMessage& message, uint64_t epoch, bool is_torchs);
[[nodiscard]] inline bool is_of_epoch(const WeightMark& mark, uint64_t epoch) {
  return mark.memory >> kStorageBits == epoch;
}
/// @pre both are of one epoch.
[[nodiscard]] inline bool is_written(const WeightMark& before, const WeightMark& now) {
  const auto digest = [](const WeightMark& mark) { return static_cast<uint32_t>(mark.content); };
  const bool counted = before.memory == now.memory && before.content >> 32 != now.content >> 32;
  return counted || (digest(before) != 0 && digest(now) != 0 && digest(before) != digest(now));
}

}  // namespace convtrace::python
