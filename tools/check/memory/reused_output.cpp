/// @file reused_output.cpp
/// reused-output: a custom op returned the same memory twice, and the first output was read after
/// the second call had overwritten it.
///
/// Why it is a fault: the reader computed with the output of another call. An op that keeps its
/// output's buffer is correct only if each output is dead when the next call begins.
/// Judged: the facts `reused.OP`: in autograd's graph a node that was created after the second call
/// has the first output as its input. The records of both outputs show whether their bits differ.
/// For results of a backward the fact is that autograd still held the tensor, for a node that
/// waited for other gradients, when a later call of the op returned it again.
/// Silent: outputs with equal bits (an op that returns a table that it keeps); outputs that were
/// read or copied before the next call; outputs in the memory of an input; a pass without
/// gradients, in which the first output cannot be distinguished from the second.

#include <charconv>
#include <optional>
#include <string>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

constexpr std::string_view kReused = "reused.";

/// The parts of a fact "output:0, 0, 1, 0, AddBackward0".
struct Reuse {
  std::string_view slot, reader;
  size_t first = 0, second = 0;  ///< positions among the op's outputs of this slot in the step
};

std::optional<Reuse> read_reuse(std::string_view text) {
  const auto slot = cut(text, ", "), first = cut(text, ", "), second = cut(text, ", "),
             call = cut(text, ", ");
  if (!call) return std::nullopt;
  const auto number = [](std::string_view part) {
    size_t value = 0;
    std::from_chars(part.data(), part.data() + part.size(), value);
    return value;
  };
  return Reuse{*slot, text, number(*first), number(*second)};
}

/// "AddBackward0" is the backward of "Add".
std::string_view op_of(std::string_view node) { return node.substr(0, node.find("Backward")); }

class ReusedOutput : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value& value : step.values) {
      if (value.role != Role::kOutput || !value.op || value.kernel) continue;
      look("reused-output");
      break;
    }
    for (const FactSeen& fact : step.facts) {
      const std::string_view name = around.names.text(fact.name);
      if (!name.starts_with(kReused)) continue;
      if (const auto reuse = read_reuse(fact.value))
        judge(step, around, name.substr(kReused.size()), *reuse);
    }
  }

 private:
  void judge(const StepValues& step, const Surroundings& around, std::string_view op,
             const Reuse& reuse) {
    const Value *first = nullptr, *second = nullptr;
    size_t position = 0;
    for (const Value& value : step.values) {
      const bool is_result = value.role == Role::kOutput || value.role == Role::kGradInput;
      if (!is_result || around.names.text(value.op) != op ||
          around.names.text(value.slot) != reuse.slot)
        continue;
      if (position == reuse.first) first = &value;
      if (position == reuse.second) second = &value;
      ++position;
    }
    // Where records were lost, the positions are those of other calls.
    if (second == nullptr || first->address + first->bytes <= second->address ||
        second->address + second->bytes <= first->address ||
        first->stats.hash == second->stats.hash)
      return;
    tell(step, around, op, reuse, *first, *second);
  }

  void tell(const StepValues& step, const Surroundings& around, std::string_view op,
            const Reuse& reuse, const Value& first, const Value& second) {
    Finding finding = about("reused-output", Severity::kError, around, step.number, first);
    finding.text =
        "What op " + std::string(op) + " gave in " + module_name(around.names, first.place.scope) +
        " was overwritten by its call in " + module_name(around.names, second.place.scope) +
        ", and read behind that by " + std::string(op_of(reuse.reader)) + ".";
    finding.evidence = {"output of the first call: " + numbers_of(first),
                        "output of the later call, in the same memory: " + numbers_of(second)};
    finding.cause = "an op that returns a buffer that it keeps, and uses again in its next call";
    finding.next =
        "return memory of its own from each call, or copy the output before the next one";
    report(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Check> make_reused_output() { return std::make_unique<ReusedOutput>(); }

}  // namespace convtrace::check
