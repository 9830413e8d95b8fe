/// @file stale_region.cpp
/// stale-region: a kernel of a compiled region gave the bits of the step before, although all that
/// they are made of is other.
///
/// Why it is a fault: the kernel's source says of which operands an output is made. Where each of
/// them has other bits than in the step before, equal bits of the output prove that it was not
/// written.
/// Silent: outputs that are made of an operand that did not change (weights that are frozen, a
/// rate of 0), or of none (tables of positions); outputs that are copies of an operand, which is
/// stale itself; all that tells_writes() leaves out; outputs of few distinct values (masks, signs);
/// kernels whose source is not known, or of which two in a module have one name.

#include <algorithm>
#include <cmath>

#include "tools/check/model/checks.h"
#include "tools/check/values/compiled_calls.h"

namespace convtrace::check {
namespace {

class StaleRegion : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    std::map<Place, Seen> now;
    for (const KernelCall& call : kernel_calls(step, around.names)) {
      const Place place{call.key, call.occurrence};
      const auto before = before_.find(place);
      if (before != before_.end() && before->second.outputs.size() == call.outputs.size())
        compare(step, around, call, before->second);
      Seen& seen = now[place];
      seen.step = step.number;
      for (const Value* input : call.inputs) seen.inputs[input->name] = input->stats.hash;
      for (const Value* output : call.outputs) seen.outputs[output->name] = output->stats.hash;
    }
    before_ = std::move(now);
  }

 private:
  using Place = std::pair<CallKey, uint32_t>;
  struct Seen {
    uint32_t step = 0;
    std::map<format::StringId, uint64_t> inputs{}, outputs{};
  };

  void compare(const StepValues& step, const Surroundings& around, const KernelCall& call,
               const Seen& before) {
    const auto made = made_of(around.facts, around.names, call);
    for (const Value* output : call.outputs) {
      const auto sources = made.find(around.names.text(output->name));
      const auto then = before.outputs.find(output->name);
      if (!tells_writes(*output) || few_values(*output) || sources == made.end() ||
          then == before.outputs.end())
        continue;
      size_t known = 0, changed = 0;
      bool copied = false;
      for (const Value* input : call.inputs) {
        copied |= input->stats.hash == output->stats.hash;
        const auto earlier = before.inputs.find(input->name);
        if (std::ranges::find(sources->second, around.names.text(input->name)) ==
            sources->second.end())
          continue;
        ++known;
        changed += earlier != before.inputs.end() && earlier->second != input->stats.hash;
      }
      if (known == 0 || changed < known || copied) continue;
      look("stale-region");
      if (then->second == output->stats.hash) tell(step, around, call, *output, before, known);
    }
  }

  /// Masks and signs: all elements have one size.
  static bool few_values(const Value& value) {
    const auto count = static_cast<double>(value.stats.count);
    return value.stats.amax.as_f64() == value.stats.amin_nonzero.as_f64() ||
           std::abs(value.stats.l2) * std::abs(value.stats.l2) >=
               count * value.stats.amax.as_f64() * value.stats.amax.as_f64() * (1 - 1e-9);
  }

  void tell(const StepValues& step, const Surroundings& around, const KernelCall& call,
            const Value& output, const Seen& before, size_t inputs) {
    Finding finding = about("stale-region", Severity::kError, around, step.number, output);
    const std::string then = std::to_string(before.step);
    const std::string kernel = kernel_text(around.facts, around.names, call.key);
    finding.text = std::string(around.names.text(output.name)) + " of kernel " + kernel +
                   " has the bits of step " + then + ", although all that it is made of changed.";
    finding.evidence = {"output: " + numbers_of(output) + ", the same hash in step " + then,
                        std::to_string(inputs) +
                            " operands that it is made of: other hashes than "
                            "in step " +
                            then};
    finding.cause = "a write that the compiler dropped, or a part of a kernel that does not run";
    finding.next = "compare with a run without torch.compile: convtrace-diff EAGER COMPILED";
    report(std::move(finding));
  }

  std::map<Place, Seen> before_;
};

}  // namespace

std::unique_ptr<Check> make_stale_region() { return std::make_unique<StaleRegion>(); }

}  // namespace convtrace::check
