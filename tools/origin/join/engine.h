#pragma once
/// @file engine.h
/// Brings the calls of all ranks together, in an order that respects the program order of each.
///
/// The calls of a rank wait in its queue. A collective is judged when it is the first of the queues
/// of all its members; a send waits for nobody, a reception for its send. Of several that are ready
/// the one of the smallest step is first, then that of the smallest rank.
///
/// Where no member can go on, two ranks wait for each other, or for one that never comes: the first
/// of what they wait for is judged with who is there. What waits for a trace that has ended is first,
/// so that what comes behind it is still judged in its order.
///
/// Threads:  one.
/// Memory:   8 bytes a call beside the queues.

#include <memory>
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
  std::vector<uint32_t> absent{};   ///< those of them that wait for nothing else: they ended
  bool circle = false;              ///< all come, but each of several waits for another
  /// Of a collective that nobody can leave: those of the missing who wait in another one for members
  /// that are here, and what they wait in.
  std::vector<uint32_t> elsewhere{};
  std::vector<uint32_t> held{};  ///< members that are here, and for which those wait
  const Call* other = nullptr;
};

/// What is done with what the engine brings together.
class Court {
 public:
  virtual ~Court() = default;
  virtual void local(uint32_t queue, const LocalBad& bad) = 0;
  virtual void send(const Member& sender, const Meeting& meeting, uint64_t& carried) = 0;
  virtual void meet(const Meeting& meeting, uint64_t carried) = 0;
  /// A rank has passed all that it did in a step.
  virtual void passed(uint32_t queue, uint32_t step) = 0;
  virtual void waits(const Waiting& waiting) = 0;
};

class Engine {
 public:
  Engine(std::span<RankQueue* const> queues, Groups& groups, Court& court);

  /// Takes what was read since. @param last  nothing more comes.
  void run(bool last);

  [[nodiscard]] uint64_t joined() const { return joined_; }
  [[nodiscard]] uint64_t alone() const { return alone_; }        ///< calls without a partner
  [[nodiscard]] uint64_t repeated() const { return repeated_; }  ///< calls of numbers that had been
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
    uint64_t carried = 0;  ///< of a send
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
  /// Judges the first of what ranks wait for. @return false: nobody waits.
  bool force(bool last);
  /// Why nobody can go on from an instance, in the order in which that is put up with.
  enum class Hold : uint8_t {
    kLost,    ///< those who are missing have gone on: their records of the call are lost
    kEnded,   ///< the traces of those who are missing have ended, or lack calls
    kCircle,  ///< all will come, or members that are known to come are elsewhere
    kMissing  ///< some never come
  };
  [[nodiscard]] Hold hold_of(const Instance& instance) const;
  /// Whether all who wait in it are far behind what was read.
  [[nodiscard]] bool is_behind(const Instance& instance) const;
  /// Marks the queues without which others could not have the results that they have.
  void mark_cut(const Instance& instance);
  [[nodiscard]] bool has_left(const Part& part) const;
  [[nodiscard]] std::vector<uint32_t> missing_of(const Instance& instance) const;
  /// Whether those who are missing have gone on: their records of the call are lost.
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
  std::vector<uint32_t> step_;                                            ///< in which a queue is
  std::vector<uint32_t> to_advance_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  Meeting meeting_;
  MeetingValues values_;
  bool told_knot_ = false, looked_for_cuts_ = false;
  uint64_t joined_ = 0, alone_ = 0, repeated_ = 0, collectives_ = 0, transfers_ = 0;
};

}  // namespace convtrace::origin
