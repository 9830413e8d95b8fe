#pragma once
/// @file held.h
/// The values that the ranks of a run hold in one step, by key.
///
/// Place:    whole_values.h puts it together.
/// Memory:   borrows the steps of all ranks until clear().
/// Threads:  not thread-safe.

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// One rank's value.
struct Held {
  const StepRecords* step = nullptr;
  const ValueRecord* record = nullptr;
  uint32_t rank = 0;
};

/// The values of one key, by rank.
struct HeldValue {
  RecordKey key;
  std::vector<Held> by_rank{};
  /// The number of ranks with each content (content_of), once count_contents() has run.
  std::map<uint64_t, uint64_t> contents{};
  uint64_t at = 0;  ///< ns of a clock that all ranks share, of the first rank that has it
  size_t made = 0;  ///< index of the record that was made of them

  [[nodiscard]] const ValueRecord& first() const { return *by_rank.front().record; }
  void count_contents();
};

/// The values of one step, of all ranks of a run.
class HeldStep {
 public:
  /// @param clock  added to times of the rank, in ns. @param step  borrowed until clear().
  void add(const StepRecords& step, uint32_t rank, uint64_t clock);
  void clear();
  [[nodiscard]] std::vector<HeldValue>& values() { return values_; }
  /// The launches of the first rank.
  [[nodiscard]] const std::vector<uint32_t>& launches() const { return launches_; }
  [[nodiscard]] bool may_be_cut() const { return may_be_cut_; }

 private:
  std::vector<HeldValue> values_;
  std::unordered_map<RecordKey, size_t, KeyHash> numbers_;
  std::deque<ValueRecord> completed_;
  std::vector<uint32_t> launches_;
  bool has_launches_ = false, may_be_cut_ = false;
};

/// @return a hash of the content, equal for equal copies.
[[nodiscard]] uint64_t content_of(const Held& held);

[[nodiscard]] inline bool has_statistics(const Held& held) {
  return held.record->capture != format::Capture::kHash;
}
/// @return whether sums of it can be compared: its number is known, or its sketch.
[[nodiscard]] bool may_be_added(const Held& held);

}  // namespace convtrace::diff
