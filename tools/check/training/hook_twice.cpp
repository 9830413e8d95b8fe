/// @file hook_twice.cpp
/// hook-twice: one hook is installed twice at one place.
///
/// Why it may be a fault: the hook's change of an output or a gradient (scaling, clipping, noise)
/// is applied twice. Usual cause: a setup that runs again, or a registration inside the training
/// loop.
/// Judged: the facts `hook.twice`, which the observer records for hooks that are the same object,
/// or have the same code and close over the same objects. A hint, since a hook that only reads, or
/// that is idempotent, may run twice.
/// Silent: hooks with the same code that close over different objects; hooks of tensors that are no
/// parameters.

#include <string>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

class HookTwice : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (step.trains) look("hook-twice");
    for (const FactSeen& fact : step.facts) {
      if (around.names.text(fact.name) != "hook.twice") continue;
      std::string_view name = fact.value;
      const auto kind = cut(name, ", ");
      if (!kind) continue;
      Value place;
      place.place.scope = fact.scope;
      Finding finding = about("hook-twice", Severity::kHint, around, step.number, place);
      finding.text = "One " + std::string(*kind) + " is installed twice in " +
                     module_name(around.names, fact.scope) + ": " + std::string(name) + ".";
      finding.evidence = {"both are one function, with the same objects around it"};
      finding.cause = "a setup that runs twice, or a registration inside of the training loop";
      finding.next =
          "register it once, or remove the first one by its handle; if it only looks, nothing is "
          "wrong";
      report(std::move(finding));
    }
  }
};

}  // namespace

std::unique_ptr<Check> make_hook_twice() { return std::make_unique<HookTwice>(); }

}  // namespace convtrace::check
