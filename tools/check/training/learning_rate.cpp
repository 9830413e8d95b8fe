/// @file learning_rate.cpp
/// learning-rate: it is 0 in every step, or from some step on, or jumps far above all that the run
/// had.
///
/// Why it is a fault: an optimizer with rate 0 trains nothing. A schedule that was given epochs for
/// steps, or restarts with another base, jumps.
/// A hint: a jump of ten times and more back to a rate that the run had, which is a restart or a
/// schedule that was made anew; a jump of a rate that never fell before, which is a warm-up in few
/// large steps.
/// Silent: warm-up (a jump counts only after three steps near the largest rate so far); a group
/// with rate 0 beside others.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kJump = 5, kBack = 10, kNear = 0.1;

class LearningRate : public Check {
  static constexpr unsigned kLeastSteps = 3;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const FactSeen& fact : step.facts)
      if (const auto place = Facts::group_of(around.names.text(fact.name), "lr");
          place && !fact.scope)
        changed_.insert(*place);
    if (!step.trains) return;
    const Facts::Settings& rates = around.facts.settings("lr");
    for (const Facts::Group& place : changed_)
      if (const auto now = rates.find(place); now != rates.end())
        change(step, around, place, Facts::number(now->second));
    changed_.clear();
    ++trained_;
    last_trained_ = step.number;
  }

  void end(const Surroundings& around) override {
    for (auto& [place, group] : groups_) settle(group);
    for (auto& [optimizer, zero] : zeros_) settle(zero);
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
    std::optional<double> rate{};
    double largest = 0, last = 0;
    uint64_t near = 0;  ///< steps with a rate near the largest
    bool told = false, fell = false;
    uint64_t counted = 0;  ///< trained_ at the last count, as in Zero
  };
  struct Zero {
    unsigned rates = 0, above = 0;  ///< counts of groups, and of those with a rate above 0
    uint32_t first = 0, first_of_last = 0;
    uint64_t steps = 0, last = 0;  ///< all; those at the end with rate 0
    bool positive = false;
    uint64_t counted = 0;
  };

  static Finding at(const Surroundings& around, uint32_t step) {
    Finding finding{
        .id = "learning-rate", .severity = Severity::kWarning, .rank = around.rank, .step = step};
    finding.phase = format::Phase::kOptimizer;
    return finding;
  }

  /// Counts the training steps since the rate changed: most rates are those of optimizers that are
  /// gone.
  void settle(Group& group) {
    const uint64_t steps = trained_ - std::exchange(group.counted, trained_);
    if (!group.rate || steps == 0) return;
    look("learning-rate", steps);
    if (*group.rate > 0 && *group.rate >= kNear * group.largest) group.near += steps;
  }

  void settle(Zero& zero) {
    const uint64_t steps = trained_ - std::exchange(zero.counted, trained_);
    if (zero.rates == 0 || steps == 0) return;
    zero.steps += steps;
    if (zero.above != 0) zero.first_of_last = last_trained_ + 1;
    zero.last = zero.above != 0 ? 0 : zero.last + steps;
    zero.positive |= zero.above != 0;
  }

  void change(const StepValues& step, const Surroundings& around, Facts::Group place,
              std::optional<double> rate) {
    Group& group = groups_.try_emplace(place, Group{.counted = trained_}).first->second;
    Zero& zero = zeros_.try_emplace(place.first, Zero{.counted = trained_}).first->second;
    settle(group);
    settle(zero);
    if (zero.steps == 0 && zero.rates == 0) zero.first = step.number;
    zero.rates += (rate ? 1U : 0U) - (group.rate ? 1U : 0U);
    zero.above += (rate && *rate > 0 ? 1U : 0U) - (group.rate && *group.rate > 0 ? 1U : 0U);
    group.rate = rate;
    if (rate) follow(step, around, place, group, *rate);
  }

  void follow(const StepValues& step, const Surroundings& around, Facts::Group place, Group& group,
              double rate) {
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
    group.last = rate;
  }

  std::map<Facts::Group, Group> groups_;
  std::map<unsigned, Zero> zeros_;
  std::set<Facts::Group> changed_;  ///< since the last training step
  uint64_t trained_ = 0;            ///< steps
  uint32_t last_trained_ = 0;       ///< a step's number
};

}  // namespace

std::unique_ptr<Check> make_learning_rate() { return std::make_unique<LearningRate>(); }

}  // namespace convtrace::check
