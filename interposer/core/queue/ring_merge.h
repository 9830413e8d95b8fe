#pragma once
/// @file ring_merge.h
/// Takes the records of one ring of every thread, in the order of a key.
///
/// Threads:  the consumer's side of those rings: one thread at a time.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "interposer/core/runtime/thread_context.h"

namespace convtrace::engine {

class RingMerge {
 public:
  /// @param ring    which ring of a context.
  /// @param last    records with a greater key stay, and so do those behind them in their ring.
  /// @param key     `uint64_t(const ByteRing::Record&)`.
  /// @param take    `bool(const ByteRing::Record&)`: whether to go on; its record is done with.
  /// @return records taken.
  template <typename Key, typename Take>
  uint64_t run(ByteRing ThreadContext::*ring, uint64_t last, Key&& key, Take&& take) {
    heads_.clear();
    for (ThreadContext* context = first_thread(); context != nullptr; context = context->next) {
      // tail() is the acquire that also makes a ring mapped by its thread visible here.
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
  /// The oldest record of one ring.
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
