#pragma once
/// @file whole_runs.h
/// Two runs whose ranks hold unlike parts of the model or of the batch, step by step, each as one
/// run that has every tensor whole.
///
/// Place:    diff.cpp compares the two sources as it compares the two traces of a rank.
/// Memory:   the steps that StepStream holds of every trace, and one step of all ranks.
/// Threads:  not thread-safe.

#include <array>
#include <memory>
#include <vector>

#include "tools/diff/read/step_source.h"
#include "tools/diff/read/step_stream.h"
#include "tools/diff/whole/whole_values.h"

namespace convtrace::diff {

using Streams = std::vector<std::unique_ptr<StepStream>>;

class WholeRuns {
 public:
  /// @param base, cand  one stream a rank, by rank; must outlive this, as `names` must.
  WholeRuns(const Streams& base, const Streams& cand, format::Definitions& names,
            const DiffRules& rules)
      : streams_{&base, &cand},
        values_(names, rules),
        missing_{std::vector<uint64_t>(base.size()), std::vector<uint64_t>(cand.size())},
        base_(*this, 0),
        cand_(*this, 1) {}

  WholeRuns(const WholeRuns&) = delete;
  WholeRuns& operator=(const WholeRuns&) = delete;

  [[nodiscard]] StepSource& base() { return base_; }
  [[nodiscard]] StepSource& cand() { return cand_; }
  /// The values that could not be put together so far.
  [[nodiscard]] const ApartValues& apart() const { return values_.apart(); }
  [[nodiscard]] uint64_t summed() const { return values_.summed(); }
  /// By rank: number of steps of the run of which the rank's trace has nothing.
  [[nodiscard]] const std::vector<uint64_t>& missing_steps(bool in_cand) const {
    return missing_[in_cand ? 1 : 0];
  }

 private:
  /// One run. A step that the other run does not have is given alone: peek() of the other one
  /// returns null meanwhile.
  class Side final : public StepSource {
   public:
    Side(WholeRuns& runs, size_t side) : runs_(runs), side_(side) {}
    const StepRecords* peek() override { return runs_.peek(side_); }
    void pop() override { runs_.has_step_[side_] = false; }

   private:
    WholeRuns& runs_;
    size_t side_;
  };

  const StepRecords* peek(size_t side);
  void advance();

  std::array<const Streams*, 2> streams_;
  WholeValues values_;
  std::array<std::vector<uint64_t>, 2> missing_;
  std::array<HeldStep, 2> held_;
  std::array<StepRecords, 2> whole_;
  std::array<bool, 2> has_step_{};
  Side base_, cand_;
};

}  // namespace convtrace::diff
