#pragma once
/// @file ring_merge.h
/// Merges the records of all threads' rings in the order of a key.
///
/// Threads:  the consumer of those rings: one thread at a time.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "interposer/core/runtime/thread_context.h"

namespace convtrace::engine {

class RingMerge {
 public:
  /// @param ring    the member of ThreadContext to merge.
  /// @param last    a record with a greater key stays in its ring, with all records behind it.
  /// @param key     `uint64_t(const ByteRing::Record&)`.
  /// @param take    `bool(const ByteRing::Record&)`: consumes a record and returns whether to
  /// continue.
  /// @return the number of records taken.
  template <typename Key, typename Take>
  uint64_t run(ByteRing ThreadContext::*ring, uint64_t last, Key&& key, Take&& take) {
    heads_.clear();
    for (ThreadContext* context = first_thread(); context != nullptr; context = context->next) {
      // tail() has acquire semantics, so a ring that its thread has just mapped is visible, too.
      ByteRing& one = context->*ring;
      if (const uint64_t end = one.tail(); end != 0) add(Head{0, &one, end, {}}, last, key);
    }
    uint64_t taken = 0;
    for (bool go_on = true; go_on && !heads_.empty(); ++taken) {
      std::pop_heap(heads_.begin(), heads_.end(), later);
      const Head head = heads_.back();
      heads_.pop_back();
      go_on = take(head.record);
      head.ring->pop();
      add(head, last, key);
    }
    return taken;
  }

 private:
  /// The oldest record of a ring.
  struct Head {
    uint64_t key;
    ByteRing* ring;
    uint64_t end;
    ByteRing::Record record;
  };
  static bool later(const Head& a, const Head& b) { return a.key > b.key; }

  template <typename Key>
  void add(Head head, uint64_t last, Key&& key) {
    head.record = head.ring->front(head.end);
    if (head.record.payload == nullptr) return;
    head.key = key(head.record);
    if (head.key > last) return;
    heads_.push_back(head);
    std::push_heap(heads_.begin(), heads_.end(), later);
  }

  std::vector<Head> heads_;  ///< a heap, smallest key on top
};

}  // namespace convtrace::engine
