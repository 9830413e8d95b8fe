/// @file common_gradients.cpp
/// reused-output: one call of a backward returns, for two inputs, gradients that have memory in
/// common.
///
/// Why it is a fault: both were computed in one scratch buffer, or in parts of a workspace whose
/// offsets are wrong, and the later one was written over the earlier one.
/// Judged: the facts `common.OP`. Ops that add their inputs return one gradient for several inputs,
/// so common memory alone proves nothing. It is a fault where the op keeps the memory from call to
/// call, or gave it two storages, and each gradient has elements of its own beside the common ones,
/// or the op has saved one of the inputs, so that its gradients depend on more than their sum.
/// Hint: kept memory of an op that has saved neither input; memory that is new in each call, of
/// which each gradient has a part of its own: wrong offsets, or windows of a padded overlap-add.
/// Silent: gradients that the op was given and passes on; two windows of memory as large as such a
/// gradient (an overlap-add); gradients of one number, as of zeros that an op keeps; gradients that
/// go to one tensor; memory that is new in each call and common as a whole.
/// Not told apart: an op that sums its inputs, saves one of them and keeps the gradient's memory.

#include <charconv>
#include <optional>
#include <string>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

constexpr std::string_view kCommon = "common.";

/// The parts of a fact "grad_input:0, grad_input:1, 0, whole, kept, needed".
struct Common {
  std::string_view first, second, extent, how, saved;
  size_t position = 0;  ///< index of `first` among the op's results of its slot in the step
};

std::optional<Common> read_common(std::string_view text) {
  const auto first = cut(text, ", "), second = cut(text, ", "), position = cut(text, ", "),
             extent = cut(text, ", "), how = cut(text, ", ");
  if (!how) return std::nullopt;
  Common common{.first = *first, .second = *second, .extent = *extent, .how = *how, .saved = text};
  const char* const end = position->data() + position->size();
  if (std::from_chars(position->data(), end, common.position).ec != std::errc())
    return std::nullopt;
  return common;
}

std::optional<Severity> severity_of(const Common& common) {
  if (common.extent == "across") return common.how == "new" ? Severity::kHint : Severity::kWarning;
  const bool kept = common.how == "kept";
  if ((kept || common.how == "foreign") && common.saved == "needed") return Severity::kWarning;
  return kept ? std::optional(Severity::kHint) : std::nullopt;
}

class CommonGradients : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const FactSeen& fact : step.facts) {
      const std::string_view name = around.names.text(fact.name);
      const auto common =
          name.starts_with(kCommon) ? read_common(fact.value) : std::optional<Common>();
      if (!common) continue;
      look("reused-output");
      const std::string_view op = name.substr(kCommon.size());
      const Value* const value = find(step, around, op, *common);
      const auto severity = severity_of(*common);
      if (severity && value != nullptr && value->measured() && !value->constant())
        tell(step, around, op, *common, *value, *severity);
    }
  }

 private:
  static const Value* find(const StepValues& step, const Surroundings& around, std::string_view op,
                           const Common& common) {
    size_t position = 0;
    for (const Value& value : step.values) {
      if (value.role == Role::kGradInput && around.names.text(value.op) == op &&
          around.names.text(value.slot) == common.first && position++ == common.position)
        return &value;
    }
    return nullptr;
  }

  void tell(const StepValues& step, const Surroundings& around, std::string_view op,
            const Common& common, const Value& value, Severity severity) {
    const bool whole = common.extent == "whole";
    const std::string first(common.first);
    Finding finding = about("reused-output", severity, around, step.number, value);
    finding.slot = common.second;
    finding.text = std::string(common.second) + " of op " + std::string(op) + " lies in " +
                   (whole ? "the memory of its " : "part of the memory of its ") + first +
                   (severity == Severity::kHint ? "." : ": the later one was written over it.");
    finding.evidence = {first + ": " + numbers_of(value)};
    if (common.how == "kept")
      finding.evidence.emplace_back("the op's last call returned this memory, too");
    if (common.how == "foreign")
      finding.evidence.emplace_back("each has a storage of its own over it");
    if (common.saved == "needed")
      finding.evidence.emplace_back(
          "the op saves one of the two inputs, and does not only add them");
    finding.cause = whole ? "one scratch buffer for several gradients of a call"
                          : "wrong offsets in a workspace of gradients";
    finding.next = "give each gradient that the backward returns memory of its own";
    report(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Check> make_common_gradients() { return std::make_unique<CommonGradients>(); }

}  // namespace convtrace::check
