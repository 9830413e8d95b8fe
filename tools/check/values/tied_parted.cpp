/// @file tied_parted.cpp
/// tied-parted: a weight that two modules shared at their first calls is two weights later.
///
/// Why it is a fault: weights are tied so that both uses train one. A copy in between (a cast, a
/// load) leaves two that drift apart. A warning where the run has trained the shared weight for a
/// step before: a program may part the two on purpose.
/// Judged: from the fact `tied` of a module, and a record of the module's own weight later.

#include <map>
#include <set>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

class TiedParted : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const FactSeen& fact : step.facts)
      if (around.names.text(fact.name) == "tied") {
        look("tied-parted");
        tied_since_.try_emplace(fact.scope, step.number);
      }
    for (const auto& [parameter, seen] : step.parameters) {
      const Value* const value = seen.updates.empty() ? seen.initial : seen.updates.back();
      if (value == nullptr || told_.contains(parameter)) continue;
      const std::string_view tied = around.facts.of_module(parameter.scope, "tied");
      const std::string wanted = std::string(around.names.text(parameter.name)) + '=';
      if ((", " + std::string(tied)).find(", " + wanted) == std::string::npos) continue;
      told_.insert(parameter);
      const auto since = tied_since_.find(parameter.scope);
      const bool was_trained = since != tied_since_.end() && since->second + 1 < step.number;
      Finding finding = about("tied-parted", was_trained ? Severity::kWarning : Severity::kError,
                              around, step.number, *value);
      finding.text = "Parameter " + parameter_name(around.names, parameter) +
                     " was shared with another module at first, and is a weight of its own now.";
      finding.evidence = {"shared at first: " + std::string(tied), "now: " + numbers_of(*value)};
      finding.cause = "a cast, a load or a wrapper made a copy of one of the two";
      finding.next = std::string("tie them again after the last change of the model") +
                     (was_trained ? ", unless they are parted on purpose" : "");
      report(std::move(finding));
    }
  }

 private:
  std::map<format::StringId, uint32_t> tied_since_;  ///< step, by module
  std::set<Parameter> told_;
};

}  // namespace

std::unique_ptr<Check> make_tied_parted() { return std::make_unique<TiedParted>(); }

}  // namespace convtrace::check
