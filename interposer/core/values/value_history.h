#pragma once
/// @file value_history.h
/// Keeps the last value of each place in the program in memory, so that the next value can be
/// stored as a difference: weights change little in a step.
///
/// A value that does not fit is not kept, and a value that is kept is not evicted: if a model is
/// larger than this memory, a cache that evicts the oldest would replace everything once a step and
/// never hit. A place whose differences are not smaller than its values is given up.
///
/// Threads:  one at a time.
/// Memory:   max_bytes of values.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "format/values/blob.h"

namespace convtrace::engine {

/// Contiguous bytes of a value, shared by the compressors that write them and those that compare
/// with them.
struct ValuePart {
  static constexpr uint8_t kDepthUnknown = 255;

  std::unique_ptr<std::byte[]> bytes;
  uint32_t size = 0;
  /// Length of the chain of differences that ends here; known once the part is compressed.
  std::atomic<uint8_t> depth{kDepthUnknown};

  [[nodiscard]] Bytes view() const { return {bytes.get(), size}; }
};

struct KeptValue {
  format::ContentId content;
  std::vector<std::shared_ptr<ValuePart>> parts;
};

class ValueHistory {
 public:
  explicit ValueHistory(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  /// @return the last value of that place if it has as many bytes, else null.
  [[nodiscard]] std::shared_ptr<const KeptValue> last(uint64_t place, uint64_t bytes) const {
    const auto at = values_.find(place);
    const bool fits = at != values_.end() && at->second && at->second->content.bytes == bytes;
    return fits ? at->second : nullptr;
  }

  /// @return a value that is not kept any more, or was not kept at all: it may be large, and is to
  /// be freed without a lock.
  std::shared_ptr<const KeptValue> keep(uint64_t place, std::shared_ptr<const KeptValue> value) {
    const auto at = values_.find(place);
    if (at != values_.end() && !at->second) return value;  // the place was given up
    const uint64_t old = at != values_.end() ? at->second->content.bytes : 0;
    const bool fits = bytes_ - old + value->content.bytes <= max_bytes_;
    if (!fits || values_.size() >= kMaxPlaces) return value;
    const uint64_t bytes = value->content.bytes;
    values_[place].swap(value);
    bytes_ += bytes - old;
    return value;
  }

  /// Gives up a place whose difference was not smaller than its value. @return as keep().
  std::shared_ptr<const KeptValue> give_up(uint64_t place) {
    const auto at = values_.find(place);
    if (at == values_.end() || !at->second) return nullptr;
    bytes_ -= at->second->content.bytes;
    return std::move(at->second);
  }

 private:
  static constexpr size_t kMaxPlaces = size_t{1} << 17;

  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  std::map<uint64_t, std::shared_ptr<const KeptValue>> values_;  ///< null: the place was given up
};

}  // namespace convtrace::engine
