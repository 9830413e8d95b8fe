#pragma once
/// @file known_values.h
/// The values of the current step that have statistics in the trace. An input without statistics
/// was made between modules (a residual sum, an attention's product), and a difference may begin
/// there, so it gets statistics of its own instead of a hash alone.
///
/// Place:    observer_port.h looks up each input.
/// Threads:  any; a mutex around a few instructions.
/// Memory:   8 bytes a value of one step, at most kMost values; all others count as known.

#include <cstdint>
#include <span>
#include <unordered_set>

#include "cupti/stats/tile/tensor_view.h"
#include "format/base/checksum.h"
#include "format/base/mutex.h"
#include "format/model/events.h"

namespace convtrace::engine {

class KnownValues {
 public:
  /// Adds a value that has statistics.
  /// @return whether it was there already: the same bytes in the same logical order.
  bool add(const format::TensorStats& event, const stats::TensorView& view) {
    const uint64_t words[] = {event.value.storage, event.value.offset, event.value.version,
                              event.bytes, is_dense(view) ? uint64_t{1} : 0};
    const uint64_t identity = checksum64(std::as_bytes(std::span(words)));
    const Lock lock(mutex_);
    if (step_ != event.header.step) {
      step_ = event.header.step;
      known_.clear();
    }
    if (known_.size() == kMost) return true;
    return !known_.insert(identity).second;
  }

 private:
  static constexpr size_t kMost = size_t{1} << 17;

  /// A view with other strides reads the same memory in another logical order.
  static bool is_dense(const stats::TensorView& view) {
    int64_t expected = 1;
    for (uint32_t i = view.rank; i-- > 0;) {
      if (view.shape[i] != 1 && view.strides[i] != expected) return false;
      expected *= view.shape[i];
    }
    return true;
  }

  Mutex mutex_;
  uint32_t step_ CONVTRACE_GUARDED_BY(mutex_) = format::kNoStep;
  std::unordered_set<uint64_t> known_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::engine
