#pragma once
/// @file stream_order.h
/// Determines which work of one stream is done before work of another stream begins.
///
/// Each stream has a vector clock: for every stream, how much of its work is done before the next
/// work here. An event carries a copy of the clock from the stream that recorded it to the streams
/// that wait for it; work that the host has waited for precedes all later work. Where an edge is not
/// known (a stream or an event from before tracing), `doubt` decides whether it is assumed: a judge
/// that accuses assumes it, one that relies on order does not.
///
/// Place:    used by memory_judge.h and cupti/values/stream_uses.h.
/// Threads:  one.
/// Source:   CUDA Driver API, "Stream synchronization behavior", "Event Management".

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/model/events.h"

namespace convtrace::judge {

/// A piece of work: the `position`th of a stream. Position 0: none.
struct Use {
  uint16_t stream = 0;  ///< from slot_of()
  uint32_t position = 0;
  constexpr bool operator==(const Use&) const = default;
};

class StreamOrder {
 public:
  enum class Doubt : uint8_t { kOrdered, kUnordered };

  explicit StreamOrder(Doubt doubt = Doubt::kOrdered);

  /// @param thread  selects the stream behind the handle of the per-thread default stream.
  [[nodiscard]] uint16_t slot_of(uint64_t stream, uint32_t thread) {
    const bool again = stream == last_.stream && thread == last_.thread;
    return again ? last_.slot : look_up(stream, thread);
  }

  /// Adds work to a stream. @return the work.
  Use work(uint16_t slot) {
    Stream& stream = streams_[slot];
    const bool alone = !stream.blocking && stream.host_seen == host_version_;
    if (!alone || stream.clock.size() <= slot || stream.count == kMostWork)
      return work_behind_others(slot);
    return {slot, stream.clock[slot] = ++stream.count};
  }

  void sync(const format::Sync& event);

  /// @pre work(slot) was called. @return whether `use` is done before the next work of `slot` begins.
  [[nodiscard]] bool ordered(Use use, uint16_t slot) const;
  /// @return whether the host has waited for `use`, so that it precedes all later work.
  [[nodiscard]] bool done(Use use) const;
  /// The next work of `slot` comes after all present work of `other`.
  void follow(uint16_t slot, uint16_t other);

  [[nodiscard]] uint64_t handle(uint16_t slot) const { return streams_[slot].handle; }

  /// Forgets everything, because edges were missed or there is too much to remember.
  void forget();
  /// @return a number that changes when everything is forgotten, which makes earlier uses
  /// meaningless.
  [[nodiscard]] uint64_t epoch() const { return epoch_; }

 private:
  using Clock = std::vector<uint32_t>;  ///< by slot; missing slots are 0
  struct Stream {
    uint64_t handle = 0;
    bool known = true;  ///< its creation was seen, or it always existed
    bool blocking = true;
    uint32_t count = 0;
    uint64_t host_seen = 0;
    Clock clock;
  };
  static constexpr uint16_t kLegacy = 0;
  static constexpr uint32_t kMostWork = ~uint32_t{0};
  static constexpr size_t kMaxStreams = 1024;
  static constexpr size_t kMaxEvents = size_t{1} << 16;
  using Key = std::pair<uint64_t, uint32_t>;
  /// The last answer of slot_of(), as a cache.
  struct Asked {
    uint64_t stream = 0;
    uint32_t thread = 0;
    uint16_t slot = kLegacy;
  };

  uint16_t look_up(uint64_t stream, uint32_t thread);
  Use work_behind_others(uint16_t slot);
  static void join(Clock& into, const Clock& other);
  static void reach(Clock& into, uint16_t slot, uint32_t position);
  uint16_t add(const Key& key, bool known, bool blocking);
  /// Adds edges that order the next work of a stream without a call.
  void catch_up(uint16_t slot);
  void join_all(Clock& into) const;
  void host_learns(const Clock& clock);
  void wait(uint16_t slot, uint64_t event);
  void finished(uint16_t slot);

  const Doubt doubt_;
  std::vector<Stream> streams_;
  std::map<Key, uint16_t> slots_;
  Asked last_;
  std::unordered_map<uint64_t, Clock> events_;  ///< empty clock: created but not recorded
  Clock host_;
  uint64_t host_version_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace convtrace::judge
