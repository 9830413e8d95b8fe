/// @file births.cpp
/// nan: the first NaN or infinity of a run that reaches a loss, a gradient, a parameter or the
/// output of a root (nan_stories.h).
///
/// Why it is a fault: no such value of a training that works is one. Where negative infinities are
/// masks they are not counted (not_finite.h).
/// Lower levels: a value that reaches nothing else (rows that are masked out and replaced later) is
/// a hint. A positive infinity without a NaN that reaches only an output is a warning: it may mask
/// a minimum. NaN in the data are a hint if they stay there, since they stand for missing values,
/// and otherwise the origin (a warning). Infinite gradients under a GradScaler are a hint: it finds
/// its scale by them.
/// Place: a gradient of an output was made by the backward of the output's consumer, which is named
/// first (made_by.h).

#include <algorithm>
#include <vector>

#include "tools/check/model/checks.h"
#include "tools/common/freed_memory.h"
#include "tools/common/text.h"
#include "tools/trace/flow/nan_stories.h"

namespace convtrace::check {
namespace {

using format::Phase;
using Kind = diff::NanStory::Kind;

diff::Passed passed_of(const Value& value) {
  return {.kind = value.role,
          .place = value.place,
          .slot = value.slot,
          .op = value.op,
          .of_kernel = static_cast<bool>(value.kernel),
          .measured = value.measured(),
          .stats = value.stats,
          .value = {value.storage, value.offset, value.generation, value.version},
          .bytes = value.bytes,
          .dtype = value.dtype};
}

Severity severity_of(const diff::NanStory& story) {
  if (story.kind == Kind::kBorn && !story.may_mask) return Severity::kError;
  return story.kind == Kind::kBorn || story.kind == Kind::kFromData ? Severity::kWarning
                                                                    : Severity::kHint;
}

class Births : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (!stories_) stories_.emplace(around.names);
    bool any = false;
    for (const Value& value : step.values) {
      if (value.measured()) look("nan");
      any |= value.role == Role::kLossScale ||
             (value.measured() && value.stats.finite != value.stats.count);
    }
    if (!any) return;
    std::vector<diff::Passed> passed;
    for (const Value& value : step.values) passed.push_back(passed_of(value));
    for (const diff::NanStory& story : stories_->see(passed)) {
      if (story.kind == Kind::kEnds) {
        tell_note(step, around, step.values[story.value]);
      } else {
        tell(step, around, story, stories_->maker_of(passed, story.value));
      }
      told_before_ = told_before_ || story.kind == Kind::kScaled || story.kind == Kind::kMissing;
      noted_ = noted_ || story.kind == Kind::kEnds;
    }
  }

 private:
  static std::string place_of(const Surroundings& around, const Value& value) {
    const std::string op(around.names.text(value.op));
    return std::string(around.names.text(value.slot)) + " of " +
           (op.empty() ? "" : "op " + op + " of ") + module_name(around.names, value.place.scope);
  }

  void tell_note(const StepValues& step, const Surroundings& around, const Value& value) {
    Finding finding = about("nan", Severity::kHint, around, step.number, value);
    finding.text = std::string(value.stats.nan != 0 ? "NaN" : "Infinity") + " in " +
                   place_of(around, value) +
                   " goes no further: no loss, gradient, parameter or output of a root has one.";
    finding.evidence = {numbers(value)};
    finding.cause = "rows that are masked out, or elements that a later operator replaces";
    finding.next = "convtrace show --nan TRACE";
    report(std::move(finding));
  }

  static std::string numbers(const Value& value) {
    const uint64_t infinite = value.stats.pos_inf + value.stats.neg_inf;
    return std::to_string(value.stats.nan) + " NaN, " + std::to_string(infinite) + " infinite of " +
           tools::counted(value.stats.count, "element") + " (" +
           std::string(to_string(value.dtype)) + "), record " + std::to_string(value.seq);
  }

  void tell(const StepValues& step, const Surroundings& around, const diff::NanStory& story,
            const std::optional<diff::MadeBy>& made) {
    const Value& value = step.values[story.value];
    Finding finding = about("nan", severity_of(story), around, step.number, value);
    std::string which = " of the run ";
    if (told_before_) which = " that the data and the loss scale do not explain ";
    if (noted_) which = " of the run that goes further ";
    finding.text = std::string("The first ") + (value.stats.nan != 0 ? "NaN" : "infinity") + which +
                   where(around, value, made) + ".";
    finding.evidence = {numbers(value)};
    if (made) {
      finding.evidence.push_back(diff::how_text(*made));
      name_maker(finding, *made);
    }
    tell_inputs(finding, step, around, value);
    if (value.poisoned != 0)
      finding.evidence.push_back(tools::counted(value.poisoned, "element") +
                                 " hold what CONVTRACE_POISON fills new memory with");
    const bool freed = was_freed(step, value);
    if (freed)
      finding.evidence.emplace_back("elements hold what CONVTRACE_POISON fills freed memory with");
    finding.cause = freed ? "memory that was read after it was freed" : cause_of(value, story);
    finding.next = next_of(around, value, freed);
    if (story.kind == Kind::kBorn && story.reached != story.value) {
      const Value& reached = step.values[*story.reached];
      finding.evidence.push_back("reaches " + place_of(around, reached) + ", record " +
                                 std::to_string(reached.seq));
    }
    if (story.ended)
      finding.evidence.push_back("that of " + place_of(around, step.values[*story.ended]) +
                                 " before it does not leave " + tools::module_text(story.ended_in));
    report(std::move(finding));
  }

  static std::string where(const Surroundings& around, const Value& value,
                           const std::optional<diff::MadeBy>& made) {
    if (!made) return "is in " + place_of(around, value);
    return "was " + diff::made_text(*made) + ", received by " + diff::maker_text(made->receiver) +
           " as " + made->receiver.slot;
  }

  /// The maker is the place of the finding.
  static void name_maker(Finding& finding, const diff::MadeBy& made) {
    finding.made_by = made;
    const auto maker = made.place();
    if (!maker) return;
    finding.scope = maker->in_no_module ? std::nullopt : std::optional(maker->scope);
    finding.op = maker->op;
    finding.slot = maker->slot;
  }

  static void tell_inputs(Finding& finding, const StepValues& step, const Surroundings& around,
                          const Value& value) {
    const CallKey key{value.place.scope, value.op, value.place.phase, value.place.call};
    const auto call = step.calls.find(key);
    if (call == step.calls.end()) return;
    for (const Value* input : call->second.inputs)
      if (input->finite() && input != &value &&
          format::number_class(input->dtype) == format::NumberClass::kFloat)
        finding.evidence.push_back(std::string(around.names.text(input->slot)) +
                                   ": finite, up to " +
                                   tools::number_text(input->stats.amax.as_f64()));
  }

  static bool was_freed(const StepValues& step, const Value& value) {
    return tools::holds_freed_memory(value.dtype, step.samples_of(value));
  }

  /// If a custom op makes such values from finite numbers, unwritten memory is a usual source.
  static std::string next_of(const Surroundings& around, const Value& value, bool freed) {
    const std::string next = "convtrace show --nan TRACE";
    if (freed) return next + " tells who freed it";
    const bool known = around.facts.of_program("setting.CONVTRACE_POISON") == "1";
    if (!value.op || known) return next;
    return next +
           ", and `convtrace run --poison 1 -- CMD`: memory that was not written or was "
           "freed then shows";
  }

  static std::string cause_of(const Value& value, const diff::NanStory& story) {
    if (value.poisoned != 0) return "memory that was never written";
    switch (story.kind) {
      case Kind::kMissing:
        return "the data contain it, perhaps for what is missing; no later value does";
      case Kind::kFromData: return "the data contain it";
      case Kind::kScaled:
        return "the GradScaler's scale is too large yet; it passes over such a step";
      default: return std::string(kCausesOfNan);
    }
  }

  std::optional<diff::NanStories> stories_;
  bool told_before_ = false, noted_ = false;
};

}  // namespace

std::unique_ptr<Check> make_births() { return std::make_unique<Births>(); }

}  // namespace convtrace::check
