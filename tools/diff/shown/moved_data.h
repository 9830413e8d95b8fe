#pragma once
/// @file moved_data.h
/// Whether data that differ are those of the other run at another place, or the same numbers in
/// another order.
///
/// The other run's data of the steps that are read are known by their hashes: equal ones are searched
/// in both runs, the nearest first, and all data of the call must be found at one distance, also those that
/// agree. What repeats within that distance says nothing. If none is found,
/// sums, norms and extremes of the calls from the root on are added up until those of both runs agree:
/// what is shuffled otherwise has the same numbers in an epoch.
///
/// Place:    rank_diff.h, one of each rank; it goes on behind the root.
/// Memory:   kMost hashes a run.
/// Threads:  not thread-safe.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/shown/shown_cause.h"

namespace convtrace::diff {

class MovedData {
 public:
  /// Takes a step of one run, the candidate's after the baseline's.
  void take(const StepRecords& step, bool in_base);
  /// Notes the root. Call it before its step is taken.
  /// @param root  one of the matches. @param what  it is, in words.
  void begin(const StepRecords& base, const StepRecords& cand, std::span<const Match> matches,
             const Match& root, std::string what);
  /// Call it after the last step.
  [[nodiscard]] std::optional<ShownCause> cause() const;

  /// @return whether a record is data: what the model is given, or the labels of a loss.
  [[nodiscard]] static bool is_data(const ValueRecord& record);

 private:
  static constexpr size_t kMost = 1 << 16;

  struct Seen {
    uint64_t hash = 0;
    uint32_t step = 0, call = 0;
  };
  /// What is known of the numbers of some tensors together.
  struct Sums {
    double count = 0, sum = 0, l1 = 0, squares = 0;
    double low = std::numeric_limits<double>::infinity(), high = -low, least = low;

    void add(const ValueRecord& record);
    [[nodiscard]] bool agree(const Sums& other, double trials) const;
  };
  struct OfRun {
    std::unordered_map<uint64_t, std::vector<Seen>> places;  ///< in the order of the run
    size_t kept = 0;
    std::vector<Sums> sums;  ///< of the root's place, each with those before; not compared yet
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
  std::array<uint64_t, 2> rows_{};  ///< of the root's value, by run; 0: not known
  uint32_t root_step_ = 0;
  bool open_ = false;    ///< sums may agree later
  size_t compared_ = 0;  ///< calls
  std::optional<Ordered> ordered_;
};

}  // namespace convtrace::diff
