#pragma once
/// @file recent.h
/// A bounded table that drops its oldest entries, and its keys.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

namespace convtrace::judge {

/// @return a key from several numbers: `sum` is the key of those before `word`.
[[nodiscard]] inline uint64_t mix(uint64_t sum, uint64_t word) {
  return (sum ^ word) * 0xD6E8FEB86659FD93 + (sum >> 29);
}

/// Holds the kMost newest keys.
template <typename Value>
class Recent {
 public:
  static constexpr size_t kMost = size_t{1} << 16;

  /// @return the value of the key, and whether it existed before.
  std::pair<Value&, bool> get(uint64_t key) {
    const auto [at, added] = values_.try_emplace(key);
    if (added) {
      order_.push_back(key);
      if (order_.size() > kMost) {
        values_.erase(order_.front());
        order_.pop_front();
      }
    }
    return {at->second, !added};
  }
  [[nodiscard]] const Value* find(uint64_t key) const {
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : &at->second;
  }

 private:
  std::unordered_map<uint64_t, Value> values_;
  std::deque<uint64_t> order_;
};

}  // namespace convtrace::judge
