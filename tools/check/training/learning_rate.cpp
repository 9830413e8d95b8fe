/// @file learning_rate.cpp
/// learning-rate: it is 0 in every step, or from some step on, or jumps far above all that the run
/// had.
///
/// Why it is a fault: an optimizer with rate 0 trains nothing. A schedule that was given epochs for
/// steps, or restarts with another base, jumps.
/// A hint: a jump of ten times and more back to a rate that the run had, which is a restart or a
/// schedule that was made anew; a jump of a rate that never fell before, which is a warm-up in few
/// large steps.
/// Silent: warm-up (a jump counts only after three steps near the largest rate so far); a group with
/// rate 0 beside others.

#include <algorithm>
#include <map>

#include "tools/check/training/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kJump = 5, kBack = 10, kNear = 0.1;

class LearningRate : public Check {
  static constexpr unsigned kLeastSteps = 3;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (!step.trains) return;
    std::map<unsigned, bool> positive;
    for (const auto& [place, value] : around.facts.settings("lr")) {
      const auto rate = Facts::number(value);
      if (!rate) continue;
      look("learning-rate");
      positive[place.first] |= *rate > 0;
      follow(step, around, place, *rate);
    }
    for (const auto& [optimizer, any] : positive) {
      Zero& zero = zeros_[optimizer];
      zero.first = zero.steps == 0 ? step.number : zero.first;
      ++zero.steps;
      if (any) zero.first_of_last = step.number + 1;
      zero.last = any ? 0 : zero.last + 1;
      zero.positive |= any;
    }
  }

  void end(const Surroundings& around) override {
    for (const auto& [optimizer, zero] : zeros_) {
      if (zero.last < kLeastSteps) continue;
      const uint32_t first = zero.positive ? zero.first_of_last : zero.first;
      Finding finding = at(around, first);
      finding.slot = "optimizer." + std::to_string(optimizer) + ".lr";
      finding.text = "The learning rate of optimizer " + std::to_string(optimizer) +
                     (zero.positive ? " is 0 in the last " : " is 0 in all ") +
                     tools::counted(zero.last, "step") + ".";
      finding.evidence = {finding.slot + " = 0 from step " + std::to_string(first) + " on"};
      finding.cause = zero.positive
                          ? "a schedule that is shorter than the run: epochs where it counts steps"
                          : "a scheduler that never leaves its warm-up, or is never stepped";
      finding.next = "convtrace show --records fact TRACE lists the rates";
      report(std::move(finding));
    }
  }

 private:
  struct Group {
    double largest = 0, last = 0;
    unsigned near = 0;  ///< steps with a rate near the largest
    bool told = false, fell = false;
  };
  struct Zero {
    uint32_t first = 0, first_of_last = 0;
    unsigned steps = 0, last = 0;  ///< all; those at the end with rate 0
    bool positive = false;
  };

  static Finding at(const Surroundings& around, uint32_t step) {
    Finding finding{
        .id = "learning-rate", .severity = Severity::kWarning, .rank = around.rank, .step = step};
    finding.phase = format::Phase::kOptimizer;
    return finding;
  }

  /// @param place  (optimizer, group)
  void follow(const StepValues& step, const Surroundings& around,
              std::pair<unsigned, unsigned> place, double rate) {
    Group& group = groups_[place];
    const bool above = rate > kJump * group.largest,
               back = group.last > 0 && rate >= kBack * group.last;
    if (!group.told && group.near >= kLeastSteps && (above || back)) {
      group.told = true;
      Finding finding = at(around, step.number);
      if (!above || !group.fell) finding.severity = Severity::kHint;
      finding.slot =
          "optimizer." + std::to_string(place.first) + "." + std::to_string(place.second) + ".lr";
      finding.text =
          "The learning rate jumps to " + tools::number_text(rate) + ", " +
          (above ? tools::times_text(rate / group.largest) + " times the largest before."
                 : tools::times_text(rate / group.last) + " times that of the step before.");
      finding.evidence = {finding.slot + ": " + tools::number_text(group.last) +
                          " in the step before, at most " + tools::number_text(group.largest) +
                          " until then"};
      finding.cause = above && !group.fell
                          ? "a warm-up in few large steps, or a schedule with another base rate"
                      : above
                          ? "a schedule with another base rate, or one that counts epochs where "
                            "it is given steps"
                          : "a restart that is meant, or a scheduler that was made anew";
      finding.next = "convtrace show --records fact TRACE lists the rates";
      report(std::move(finding));
    }
    group.fell |= rate < group.last;
    if (rate * kNear > group.largest) group.near = 0;
    group.largest = std::max(group.largest, rate);
    if (rate > 0 && rate >= kNear * group.largest) ++group.near;
    group.last = rate;
  }

  std::map<std::pair<unsigned, unsigned>, Group> groups_;
  std::map<unsigned, Zero> zeros_;
};

}  // namespace

std::unique_ptr<Check> make_learning_rate() { return std::make_unique<LearningRate>(); }

}  // namespace convtrace::check
