#pragma once
/// @file value_history.h
/// The last value of each place in the program, in memory, so that the next one can be stored as
/// the difference: weights change little in a step.
///
/// What does not fit is not kept, and what is kept stays: a model larger than this would turn a
/// cache that lets go of the oldest over once a step and never hit. A place whose values do not
/// shrink that way is given up.
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

/// Consecutive bytes of a value, shared by those who compress and those who compare with it.
struct ValuePart {
  static constexpr uint8_t kDepthUnknown = 255;

  std::unique_ptr<std::byte[]> bytes;
  uint32_t size = 0;
  std::atomic<uint8_t> depth{kDepthUnknown};  ///< as it is stored; known once it is compressed

  [[nodiscard]] Bytes view() const { return {bytes.get(), size}; }
};

struct KeptValue {
  format::ContentId content;
  std::vector<std::shared_ptr<ValuePart>> parts;
};

class ValueHistory {
 public:
  explicit ValueHistory(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  /// @return the last value of that place if it is as long, else null.
  [[nodiscard]] std::shared_ptr<const KeptValue> last(uint64_t place, uint64_t bytes) const {
    const auto at = values_.find(place);
    const bool fits = at != values_.end() && at->second && at->second->content.bytes == bytes;
    return fits ? at->second : nullptr;
  }

  /// @return what is not kept any more, or not at all: much memory, to be freed without a lock.
  std::shared_ptr<const KeptValue> keep(uint64_t place, std::shared_ptr<const KeptValue> value) {
    const auto at = values_.find(place);
    if (at != values_.end() && !at->second) return value;  // given up
    const uint64_t old = at != values_.end() ? at->second->content.bytes : 0;
    const bool fits = bytes_ - old + value->content.bytes <= max_bytes_;
    if (!fits || values_.size() >= kMaxPlaces) return value;
    const uint64_t bytes = value->content.bytes;
    values_[place].swap(value);
    bytes_ += bytes - old;
    return value;
  }

  /// The difference to the last value was no smaller than the value. @return as keep().
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
  std::map<uint64_t, std::shared_ptr<const KeptValue>> values_;  ///< null: given up
};

}  // namespace convtrace::engine
