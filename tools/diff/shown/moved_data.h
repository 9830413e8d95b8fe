#pragma once
/// @file moved_data.h
/// Finds out whether differing data are the other run's data of another call, or the same numbers
/// in another order.
///
/// All data that were read are known by their hashes. Equal hashes are searched in both runs, the
/// nearest first. All data of the root's call, those that agree included, must be found at one
/// distance; data that repeat within it are ambiguous. If there is no such distance, sums, norms
/// and extremes of the calls from the root on are added up until those of both runs agree: data in
/// another order have the same numbers in an epoch.
///
/// Place:    rank_diff.h, one for each rank; it continues after the root.
/// Memory:   kMost hashes for each run.
/// Threads:  not thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/shown/shown_cause.h"
#include "tools/diff/shown/sums.h"

namespace convtrace::diff {

class MovedData {
 public:
  /// Takes a step of one run, the candidate's after the baseline's.
  void take(const StepRecords& step, bool in_base);
  /// Sets the root. Call it before its step is taken.
  /// @param root  one of the matches. @param what  the root in words.
  void begin(const StepRecords& base, const StepRecords& cand, std::span<const Match> matches,
             const Match& root, std::string what);
  /// Call it after the last step.
  [[nodiscard]] std::optional<ShownCause> cause() const;

  /// @return whether a record is data: an input of the model, or the labels of a loss.
  [[nodiscard]] static bool is_taken(const ValueRecord& record);

 private:
  static constexpr size_t kMost = 1 << 16;

  struct Seen {
    uint64_t hash = 0;
    uint32_t step = 0, call = 0;
  };
  struct OfRun {
    std::unordered_map<uint64_t, std::vector<Seen>> places;  ///< in the order of the run
    size_t kept = 0;
    std::vector<Sums> sums;  ///< running sums at the root's place, not compared yet
    Sums all;
  };
  /// Data of the root's call, by their place and their number there.
  struct Item {
    uint64_t place = 0;
    std::array<size_t, 2> at{};  ///< by run
  };
  struct Found {
    bool in_base = false;  ///< the run in which the other one's data are elsewhere
    ptrdiff_t distance = 0;
    Seen own, elsewhere;
    size_t run = 0;  ///< calls for which it holds, from the root's on
  };

  /// Calls, from the root's on, whose sums agree, and the step of the last.
  struct Ordered {
    size_t calls = 0;
    uint32_t step = 0;
  };

  void compare_sums(uint32_t step);
  [[nodiscard]] std::optional<Found> found() const;
  [[nodiscard]] const Seen* seen(bool in_base, uint64_t place, ptrdiff_t at) const;
  [[nodiscard]] bool repeats(bool in_base, ptrdiff_t at, ptrdiff_t distance) const;
  [[nodiscard]] bool holds(bool in_base, ptrdiff_t distance, size_t later) const;

  std::array<OfRun, 2> runs_;  ///< the baseline's first
  std::vector<Item> items_;    ///< the root first
  std::string what_;
  std::array<uint64_t, 2> rows_{};  ///< rows of the root's value, by run; 0: unknown
  uint32_t root_step_ = 0;
  bool open_ = false;    ///< sums may agree later
  size_t compared_ = 0;  ///< calls
  std::optional<Ordered> ordered_;
};

}  // namespace convtrace::diff
