/// @file dropout_mask.cpp
/// not-repeatable: the backward pass of a dropout uses another mask than its forward pass.
///
/// Why it is a fault: a recomputation that draws other random numbers (preserve_rng_state=False)
/// gives gradients of a network that never gave an output. Where PyTorch ends a recomputation early
/// the second mask is not recorded, but it shows in the gradient after it.
/// How it shows: elements that the mask drops are 0 in the dropout's output and in the gradient of
/// its input. So the gradient has as many zeros as the output, or more where it is 0 by itself, and
/// never fewer.
/// Judged: a dropout whose input has no zeros and is the output of one other module, whose gradient
/// has about as many zeros as the rate says (else it also flows past the dropout).
/// Not seen: a second mask that happens to drop more in nearly every call.

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using format::Phase;

constexpr unsigned kLeastPlaces = 3;
constexpr double kDeviations = 6;

uint64_t zeros(const Value& value) { return value.stats.pos_zero + value.stats.neg_zero; }

class DropoutMask : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (told_) return;
    std::map<uint64_t, const Value*> made_by;  // outputs by their hash; null: of several modules
    for (const auto& [key, call] : step.calls) {
      if (key.phase != Phase::kForward || key.op || around.facts.contains_others(key.scope))
        continue;
      for (const Value* output : call.outputs) {
        const auto [entry, is_new] = made_by.emplace(output->stats.hash, output);
        if (!is_new) entry->second = nullptr;
      }
    }
    for (const auto& [key, call] : step.calls) {
      if (key.phase != Phase::kForward || key.op ||
          !around.facts.class_of(key.scope).starts_with("Dropout"))
        continue;
      if (call.inputs.size() != 1 || call.outputs.size() != 1 || !call.outputs[0]->measured())
        continue;
      const auto source = made_by.find(call.inputs[0]->stats.hash);
      if (source == made_by.end() || source->second == nullptr || zeros(*source->second) != 0)
        continue;
      compare(step, around, *call.outputs[0], *source->second);
    }
  }

 private:
  void compare(const StepValues& step, const Surroundings& around, const Value& dropped,
               const Value& source) {
    const auto gradients = step.grad_outputs.find(source.place.scope);
    if (gradients == step.grad_outputs.end()) return;
    const auto of_call = [&](const Value* one) { return one->place.call == source.place.call; };
    const auto gradient = std::ranges::find_if(gradients->second, of_call);
    if (gradient == gradients->second.end() || !(*gradient)->finite()) return;
    const double count = static_cast<double>(dropped.stats.count),
                 here = static_cast<double>(zeros(dropped)),
                 there = static_cast<double>(zeros(**gradient));
    const double spread = std::sqrt(here * (1 - here / count));
    if (spread == 0 || std::abs(here - there) > kDeviations * spread) return;
    look("not-repeatable");
    if (here <= there || ++unlike_ < kLeastPlaces) return;
    told_ = true;
    Finding finding = about("not-repeatable", Severity::kWarning, around, step.number, dropped);
    finding.text = "The backward pass of " + module_name(around.names, dropped.place.scope) +
                   " uses another mask than its forward pass.";
    finding.evidence = {"zeros in its output: " + std::to_string(zeros(dropped)) + " of " +
                            tools::counted(dropped.stats.count, "element"),
                        "zeros in the gradient of its input: " + std::to_string(zeros(**gradient))};
    finding.cause =
        "activation checkpointing with preserve_rng_state=False, or a generator of the program's "
        "own";
    finding.next = "leave preserve_rng_state at True";
    report(std::move(finding));
  }

  unsigned unlike_ = 0;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_dropout_mask() { return std::make_unique<DropoutMask>(); }

}  // namespace convtrace::check
