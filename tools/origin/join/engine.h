#pragma once
/// @file engine.h
/// Brings the calls of all ranks together, in an order that respects the program order of each.
///
/// The calls of a rank wait in its queue. A collective is judged when it is the first in the queues
/// of all its members; a send does not wait, a reception waits for its send. Among several that are
/// ready, the one with the smallest step is first, then the one with the smallest rank.
///
/// If no rank can go on, two ranks wait for each other, or for a call that never comes. Then one
/// collective is judged with the members that are there. One that waits for a trace that has ended
/// is first, so that later calls are still judged in their order.
///
/// Threads:  one.
/// Memory:   8 bytes a call beside the queues.

#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/origin/join/groups.h"
#include "tools/origin/join/meeting.h"

namespace convtrace::origin {

/// A collective that waits for some of its members at the end of the job.
struct Waiting {
  const Meeting* meeting = nullptr;
  std::vector<uint32_t> missing{};  ///< numbers of the queues of members that never come
  std::vector<uint32_t> absent{};   ///< those of `missing` that ended
  bool circle = false;              ///< all come, but each of several waits for another
  /// For a collective that no member can leave: the missing members that wait in another one for
  /// members that are here, and their call there (`other`).
  std::vector<uint32_t> elsewhere{};
  std::vector<uint32_t> held{};  ///< members that are here, and for which `elsewhere` waits
  const Call* other = nullptr;
};

/// The receiver of the engine's results, in the order of the job.
class Court {
 public:
  virtual ~Court() = default;
  virtual void local(uint32_t queue, const LocalBad& bad) = 0;
  virtual void send(const Member& sender, const Meeting& meeting, uint64_t& carried) = 0;
  virtual void meet(const Meeting& meeting, uint64_t carried) = 0;
  /// Called when a rank has passed all its calls of a step.
  virtual void passed(uint32_t queue, uint32_t step) = 0;
  virtual void waits(const Waiting& waiting) = 0;
};

class Engine {
 public:
  Engine(std::span<RankQueue* const> queues, Groups& groups, Court& court);

  /// Takes the calls read since the last run(). @param last  no more calls follow.
  void run(bool last);

  [[nodiscard]] uint64_t joined() const { return joined_; }
  [[nodiscard]] uint64_t alone() const { return alone_; }        ///< calls without a partner
  [[nodiscard]] uint64_t repeated() const { return repeated_; }  ///< calls with a repeated number
  [[nodiscard]] uint64_t collectives() const { return collectives_; }
  [[nodiscard]] uint64_t transfers() const { return transfers_; }

 private:
  struct Key {
    uint32_t group = 0, source = kNone, destination = kNone;
    uint64_t tag = 0, number = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const noexcept;
  };
  struct Part {
    uint32_t queue = 0;
    uint64_t call = 0;  ///< ordinal
  };
  struct Instance {
    Key key;
    std::vector<Part> parts;
    uint32_t arrived = 0;
    uint64_t carried = 0;  ///< the origins' bits that a send carries
    bool open = false, queued = false, told = false;
  };
  struct Ready {
    uint32_t step = 0, rank = 0;
    uint64_t call = 0;
    uint32_t instance = 0;
    auto operator<=>(const Ready&) const = default;
  };

  void join_new();
  void join(uint32_t queue, uint64_t ordinal);
  [[nodiscard]] bool joinable(const Call& call, uint32_t queue, Key& key);
  [[nodiscard]] size_t wanted(const Instance& instance) const;
  void advance(uint32_t queue);
  void pass_locals(uint32_t queue, uint64_t ordinal);
  void cross_to(uint32_t queue, uint32_t step);
  /// @return whether the rank may go on.
  bool arrive(uint32_t queue, Call& call);
  void check_ready(uint32_t instance);
  void judge(uint32_t instance, bool forced);
  void make_meeting(const Instance& instance, bool forced);
  void drop_done(uint32_t queue);
  void drain();
  /// Judges the first collective that ranks wait in. @return false if no rank waits.
  bool force(bool last);
  /// Why no rank can go on from an instance, in the order in which instances are forced.
  enum class Hold : uint8_t {
    kLost,    ///< the missing members have gone on: their records of the call are lost
    kEnded,   ///< the missing members' traces have ended, or lack calls
    kCircle,  ///< all will come, or members that are known to come are elsewhere
    kMissing  ///< some never come
  };
  [[nodiscard]] Hold hold_of(const Instance& instance) const;
  /// @return whether all ranks that wait in it are far behind the events that were read.
  [[nodiscard]] bool is_behind(const Instance& instance) const;
  /// Marks queues that lack calls, since other ranks have results that need these calls.
  void mark_cut(const Instance& instance);
  [[nodiscard]] bool has_left(const Part& part) const;
  [[nodiscard]] std::vector<uint32_t> missing_of(const Instance& instance) const;
  /// @return whether the missing members have gone on: their records of the call are lost.
  [[nodiscard]] bool all_others_passed(const Instance& instance) const;
  void tell_waiting(std::vector<Ready> waiting);
  [[nodiscard]] Waiting waiting_at(const Instance& instance);
  void find_elsewhere(const Instance& instance, Waiting& waiting) const;
  [[nodiscard]] bool is_expected(const Instance& instance, uint32_t queue) const;

  std::span<RankQueue* const> queues_;
  std::vector<const RankQueue*> readable_;
  Groups& groups_;
  Court& court_;
  std::unordered_map<Key, uint32_t, KeyHash> numbers_;
  std::vector<Instance> instances_;
  std::vector<uint32_t> unused_;                                          ///< instances
  std::vector<std::unordered_map<Key, uint64_t, KeyHash>> last_numbers_;  ///< by queue
  std::vector<uint32_t> step_;                                            ///< by queue
  std::vector<uint32_t> to_advance_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  Meeting meeting_;
  MeetingValues values_;
  bool told_knot_ = false, looked_for_cuts_ = false;
  uint64_t joined_ = 0, alone_ = 0, repeated_ = 0, collectives_ = 0, transfers_ = 0;
};

}  // namespace convtrace::origin
