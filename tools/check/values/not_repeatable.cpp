/// @file not_repeatable.cpp
/// not-repeatable: a module call with the inputs of another call gave other outputs.
///
/// Why it is a fault: within a step weights do not change, so a function of the inputs gives equal
/// bits. A race, unwritten memory, or an unintended state does not.
/// Judged: (1) a call in the recomputation of activation checkpointing against the forward pass:
/// other outputs for equal inputs, or other inputs in the only call. Random numbers are no excuse
/// there, since the recomputation must draw the same ones. (2) two calls of an evaluation in
/// evaluation mode (a hint: a model may sample, or keep a state). (3) two calls in the forward pass
/// without a backward pass in between: of layers of torch that draw no numbers; of tagged ops in
/// whose calls no random generator moves, while arguments that are no tensors stay the same; of
/// ops of which that is not known, and the program's own layers (a hint), where no generator moved
/// in the step.
/// Silent: modules that contain others in the forward pass; parametrizations (spectral norm
/// iterates); modules whose buffers moved in the step; calls of which an input or output was not
/// recorded.
/// Not told apart: a layer or an op that keeps a state on purpose or draws from a generator of its
/// own, a layer that takes arguments that are no tensors.

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::check {
namespace {

using format::Phase;

/// A larger difference is more than another order of additions makes in types of 16 bits.
constexpr double kMoreThanRounding = 0.02;

bool draws_numbers(std::string_view kind) {
  constexpr std::string_view kDrawing[] = {
      "Dropout", "RReLU", "FractionalMaxPool", "Multihead", "RNN", "LSTM", "GRU", "Transformer"};
  for (const std::string_view word : kDrawing)
    if (kind.find(word) != std::string_view::npos) return true;
  return false;
}

class NotRepeatable : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    parting_.clear();
    recomputed_ = false;
    std::set<format::StringId> moved;  // modules with buffers that changed
    for (const Value& value : step.values) {
      const bool parts = value.role == Role::kGradOutput || value.role == Role::kLoss ||
                         value.role == Role::kWritten;
      if (parts) parting_.push_back(value.seq);
      if (value.role == Role::kBuffer) moved.insert(value.place.scope);
    }
    Series series;
    for (auto call = step.calls.begin(); call != step.calls.end(); ++call) {
      const auto& [key, values] = *call;
      if (!values.inputs.empty() && !values.outputs.empty()) series.push_back(&*call);
      const auto next = std::next(call);
      const bool last = next == step.calls.end() || next->first.scope != key.scope ||
                        next->first.op != key.op || next->first.phase != key.phase;
      if (!last) continue;
      if (!series.empty() && !moved.contains(key.scope)) judge(step, around, series);
      series.clear();
    }
    compare_inputs(step, around);
  }

 private:
  using Calls = std::map<CallKey, CallStep>;
  /// Calls of one module, op and phase, in the order of their numbers.
  using Series = std::vector<const Calls::value_type*>;

  void judge(const StepValues& step, const Surroundings& around, const Series& series) {
    const CallKey& key = series.front()->first;
    // Memory that torch.empty and its like give out has any contents.
    if (diff::leaves_unwritten(around.names.text(key.op))) return;
    if (key.phase == Phase::kRecompute) compare_recomputed(step, around, series);
    const bool repeated = (key.phase == Phase::kEvaluation && evaluates(key, around)) ||
                          (key.phase == Phase::kForward && repeats(key, around));
    if (repeated) compare_repeated(step, around, series);
  }

  static bool repeats(const CallKey& key, const Surroundings& around) {
    // Operations of PyTorch take numbers and dimensions, of which there is no record.
    if (around.names.text(key.op).starts_with("aten::")) return false;
    if (key.op) return around.facts.takes_tensors_alone(key.scope, key.op).value_or(!around.drew);
    if (around.facts.contains_others(key.scope)) return false;
    if (!around.facts.is_torchs(key.scope))
      return !around.drew && !around.facts.is_parametrized(key.scope);
    return !draws_numbers(around.facts.class_of(key.scope));
  }

  static bool evaluates(const CallKey& key, const Surroundings& around) {
    return !key.op && around.facts.of_module(key.scope, "mode.evaluation") != "train" &&
           !around.facts.is_parametrized(key.scope);
  }

  /// @return whether weights may have changed between two calls: by an optimizer's trial step, or a
  /// write of the program.
  [[nodiscard]] bool are_parted(uint64_t a, uint64_t b) const {
    return std::ranges::upper_bound(parting_, a) != std::ranges::upper_bound(parting_, b);
  }

  /// Finds the earliest input of a recomputation that differs from the forward pass. PyTorch may
  /// end a recomputation before its last result is recorded; that result's input shows the
  /// difference.
  void compare_inputs(const StepValues& step, const Surroundings& around) {
    const Value *first = nullptr, *before = nullptr;
    for (const auto& [key, again] : step.calls) {
      if (key.phase != Phase::kRecompute || key.call != 0 || key.op) continue;
      const auto once = step.calls.find({key.scope, key.op, Phase::kForward, 0});
      const bool single = !step.calls.contains({key.scope, key.op, Phase::kForward, 1}) &&
                          !step.calls.contains({key.scope, key.op, Phase::kRecompute, 1});
      if (once == step.calls.end() || !single) continue;
      if (once->second.inputs.size() != again.inputs.size()) continue;
      for (size_t i = 0; i < again.inputs.size(); ++i) {
        look("not-repeatable");
        if (again.inputs[i]->stats.hash == once->second.inputs[i]->stats.hash ||
            again.inputs[i]->seq < once->second.inputs[i]->seq)
          continue;
        if (first != nullptr && first->seq < again.inputs[i]->seq) continue;
        first = again.inputs[i];
        before = once->second.inputs[i];
      }
    }
    if (first == nullptr || recomputed_) return;
    const double apart = distance_from(step, *before, *first);
    const Severity severity = apart > kMoreThanRounding ? Severity::kWarning : Severity::kHint;
    Finding finding = about("not-repeatable", severity, around, step.number, *first);
    finding.text = "When it was recomputed for backward, " +
                   module_name(around.names, first->place.scope) +
                   " got another input than in the forward pass.";
    finding.evidence = {"forward: " + numbers_of(*before), "recomputed: " + numbers_of(*first)};
    finish(std::move(finding), around, Phase::kRecompute);
  }

  /// @return the distance of a value from an earlier one. If the earlier one has only a hash,
  /// another record with its bits is used; 0 if there is none, since inputs that are rebuilt from
  /// outputs differ by rounding.
  static double distance_from(const StepValues& step, const Value& before, const Value& now) {
    const auto same = std::ranges::find_if(step.values, [&before](const Value& value) {
      return value.measured() && value.stats.hash == before.stats.hash &&
             value.stats.count == before.stats.count;
    });
    return same == step.values.end() ? 0 : relative_distance(*same, now);
  }

  /// The values alone, without the number of the call.
  static uint64_t bits(const std::vector<const Value*>& values) {
    uint64_t sum = values.size();
    for (const Value* value : values)
      sum = diff::mix_all({sum, value->stats.hash, value->slot.value, value->shape});
    return sum;
  }

  /// Compares each call with the one before it that had equal inputs.
  void compare_repeated(const StepValues& step, const Surroundings& around, const Series& series) {
    std::unordered_map<uint64_t, const CallStep*> by_inputs;
    for (const auto* call : series) {
      const CallStep& now = call->second;
      const auto [entry, is_new] = by_inputs.try_emplace(bits(now.inputs), &now);
      const CallStep& before = *std::exchange(entry->second, &now);
      const bool comparable = !is_new && before.inputs.size() == now.inputs.size() &&
                              before.outputs.size() == now.outputs.size() &&
                              !are_parted(before.outputs.front()->seq, now.outputs.front()->seq);
      if (!comparable) continue;
      look("not-repeatable");
      if (bits(before.outputs) != bits(now.outputs))
        return tell(step, around, before, now, "when it was called again in the step");
    }
  }

  /// Compares each recomputed call with those of the forward pass that had equal inputs: one of
  /// them must have given its outputs.
  void compare_recomputed(const StepValues& step, const Surroundings& around,
                          const Series& series) {
    const CallKey& key = series.front()->first;
    std::unordered_map<uint64_t, const CallStep*> by_inputs;
    std::unordered_set<uint64_t> by_both;
    const auto both = [](const CallStep& call) {
      return bits(call.inputs) * 31 + bits(call.outputs);
    };
    for (auto at = step.calls.lower_bound({key.scope, key.op, Phase::kForward, 0});
         at != step.calls.end() && at->first.scope == key.scope && at->first.op == key.op &&
         at->first.phase == Phase::kForward;
         ++at) {
      by_inputs[bits(at->second.inputs)] = &at->second;
      by_both.insert(both(at->second));
    }
    for (const auto* call : series) {
      const CallStep& again = call->second;
      const auto first = by_inputs.find(bits(again.inputs));
      if (first == by_inputs.end()) continue;
      // A call behind it is another one: a hook calls what a forward pass calls later.
      const bool comparable = first->second->inputs.size() == again.inputs.size() &&
                              first->second->outputs.size() == again.outputs.size() &&
                              first->second->outputs.front()->seq < again.outputs.front()->seq;
      if (!comparable) continue;
      look("not-repeatable");
      if (by_both.contains(both(again))) continue;
      if (again.outputs.front()->measured()) recomputed_ = true;
      return tell(step, around, *first->second, again, "when it was recomputed for backward");
    }
  }

  void tell(const StepValues& step, const Surroundings& around, const CallStep& first,
            const CallStep& again, const std::string& when) {
    size_t at = 0;
    while (at + 1 < first.outputs.size() &&
           first.outputs[at]->stats.hash == again.outputs[at]->stats.hash)
      ++at;
    const Value &one = *first.outputs[at], &two = *again.outputs[at];
    const double apart = relative_distance(one, two);
    const bool known = one.measured() && two.measured();
    // A layer of the program's own may take arguments that are no tensors, or keep a state.
    const bool sure =
        two.place.phase == Phase::kRecompute ||
        (two.place.phase == Phase::kForward && (one.op || around.facts.is_torchs(one.place.scope)));
    Finding finding =
        about("not-repeatable",
              sure && known && apart > kMoreThanRounding ? Severity::kWarning : Severity::kHint,
              around, step.number, two);
    const std::string what =
        one.op ? "op " + finding.op : module_name(around.names, one.place.scope);
    finding.text = "With equal inputs, " + what + " gave another output " + when + ": " +
                   (!known      ? std::string("by how much is not known.")
                    : apart < 1 ? tools::percent_text(apart) + " apart."
                                : std::string("nothing alike."));
    finding.evidence = {"inputs of both calls: " + numbers_of(*first.inputs.front()),
                        std::string(to_string(one.place.phase)) + ", call " +
                            std::to_string(one.place.call) + ": output " + numbers_of(one),
                        std::string(to_string(two.place.phase)) + ", call " +
                            std::to_string(two.place.call) + ": output " + numbers_of(two)};
    finish(std::move(finding), around, two.place.phase);
  }

  void finish(Finding finding, const Surroundings& around, Phase phase) {
    finding.cause =
        phase == Phase::kRecompute
            ? "random numbers that are drawn anew (preserve_rng_state=False), a "
              "state that the module keeps, a race or unwritten memory in a kernel"
        : phase == Phase::kEvaluation
            ? "a dropout that asks for no mode (functional.dropout without "
              "training=self.training), "
              "sampling, a state that the module keeps"
            : "a race or unwritten memory in a kernel, a state or an argument that is no tensor";
    const bool poisoned = around.facts.of_program("setting.CONVTRACE_POISON") == "1";
    finding.next =
        phase == Phase::kEvaluation
            ? "look for dropout or sampling that does not depend on model.training"
            : (poisoned ? ""
                        : "`convtrace run --poison 1 -- CMD` (unwritten memory then shows), ") +
                  std::string("`convtrace repeat -- CMD` to see whether whole runs repeat");
    report(std::move(finding));
  }

  std::vector<uint64_t> parting_;  ///< records of this step's backward passes, and of weights
                                   ///< that the program wrote, ascending
  bool recomputed_ = false;        ///< this step's recomputation gave other outputs
};

}  // namespace

std::unique_ptr<Check> make_not_repeatable() { return std::make_unique<NotRepeatable>(); }

}  // namespace convtrace::check
