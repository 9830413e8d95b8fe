/// @file gradient_flow.cpp
/// no-gradient, no-motion, optimizer-of-others: parameters that a run never trained.
///
/// Why it is a fault: a parameter that asks for a gradient, belongs to a module that took part in
/// the forward pass of training and is in an optimizer was meant to be trained. Of one that is in
/// no optimizer although gradients pass its module, the same holds where it is an exception: where
/// most parameters of its root are left out, a part of the model was frozen by not handing it over,
/// which is only a hint. An optimizer whose tensors belong to no module that was called, beside a
/// model of which no parameter ever moves, has another model's parameters.
/// A bias whose gradient is exactly zero is a hint: differences of two outputs cancel it.
/// Silent: a gradient that was not recorded of a parameter that moves (sparse ones); fewer than two training steps with values; frozen parameters; modules that training
/// never called; steps in which every learning rate is 0; gradients that are not finite (a
/// GradScaler passes over such a step); f32 updates that are too small for their weights.

#include <algorithm>
#include <cctype>
#include <set>

#include "tools/check/values/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using format::Phase;

constexpr uint32_t kLeastSteps = 2;
constexpr size_t kNamesTold = 3;
/// Gradients that are smaller than this share of the run's largest are rounding.
constexpr double kTinyShare = 1e-6;

/// "group0.3": a tensor of an optimizer that no module owns.
bool is_foreign(std::string_view name) {
  return name.starts_with("group") && name.size() > 5 && std::isdigit(name[5]) != 0 &&
         name.find('.') != std::string_view::npos;
}

/// A smaller update is lost in a weight of this type.
double unit(format::DType dtype) {
  switch (dtype) {
    case format::DType::kBF16:
      return 0x1p-8;
    case format::DType::kF16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

class GradientFlow : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value* input : step.data) roots_.insert(input->place.scope);
    note_parameters(step, around);
    if (!step.trains) return;
    ++steps_;
    if (first_step_ == format::kNoStep) first_step_ = step.number;
    std::set<format::StringId> called;
    for (const auto& [key, call] : step.calls)
      if (key.phase == Phase::kForward || key.phase == Phase::kRecompute) called.insert(key.scope);
    const double rate = around.facts.largest_rate().value_or(1);
    for (auto& [parameter, known] : parameters_) {
      known.steps_called += called.contains(parameter.scope) ? 1 : 0;
      known.steps_passed += step.grad_outputs.contains(parameter.scope) ? 1 : 0;
      const auto now = step.parameters.find(parameter);
      if (now != step.parameters.end()) follow(known, now->second, rate);
    }
  }

  void end(const Surroundings& around) override {
    if (steps_ < kLeastSteps) return;
    if (tell_foreign(around)) return;
    if (any_updates_) look("optimizer-of-others");
    std::vector<const Entry*> without, unmoved, left_out;
    for (const Entry& entry : parameters_) {
      const Known& known = entry.second;
      if (known.frozen || is_foreign(around.names.text(entry.first.name))) continue;
      if (known.updates == 0 && goes_by_another_name(known)) continue;
      if (known.steps_called >= kLeastSteps && any_gradient_) look("no-gradient");
      if (known.motions > 0 || known.pushes >= kLeastSteps) look("no-motion");
      if (known.updates == 0) {
        if (any_updates_ && known.initial && known.steps_passed >= kLeastSteps)
          left_out.push_back(&entry);
      } else if (known.steps_called >= kLeastSteps && known.gradients == 0 && any_gradient_ &&
                 (known.zeros > 0 || known.motions == 0)) {
        without.push_back(&entry);
      } else if (known.motions == 0 && known.pushes >= kLeastSteps) {
        unmoved.push_back(&entry);
      }
    }
    for (const Entry* entry : without) tell_without(around, *entry);
    tell_unmoved(around, unmoved);
    tell_left_out(around, left_out);
  }

 private:
  struct Known {
    Value last{};      ///< as it was last recorded
    Value gradient{};  ///< the last one that was not zero
    bool frozen = false, initial = false, seen = false;
    uint32_t steps_called = 0, steps_passed = 0;
    uint32_t updates = 0;    ///< records behind an optimizer's step
    uint32_t motions = 0;    ///< updates that changed it
    uint32_t gradients = 0;  ///< that were not zero
    uint32_t zeros = 0;      ///< gradients that were
    uint32_t pushes = 0;     ///< updates that should have changed it
    double rate = 0;
  };
  using Entry = std::pair<const Parameter, Known>;

  /// A name may go to another module: one that was called alone while the model was made.
  void forget_replaced(const StepValues& step, const Surroundings& around) {
    for (const FactSeen& fact : step.facts) {
      if (!fact.scope || around.names.text(fact.name) != "class") continue;
      std::string& known = classes_[fact.scope];
      if (!known.empty() && known != fact.value)
        std::erase_if(parameters_, [&](const Entry& entry) {
          return entry.first.scope == fact.scope && entry.second.updates == 0;
        });
      known = fact.value;
    }
  }

  void note_parameters(const StepValues& step, const Surroundings& around) {
    forget_replaced(step, around);
    for (const auto& [parameter, seen] : step.parameters) {
      Known& known = parameters_[parameter];
      if (seen.initial != nullptr) {
        known.initial = true;
        known.frozen = around.facts.frozen(parameter);
        if (!known.seen) known.last = *seen.initial;
        known.seen = true;
      }
    }
  }

  void follow(Known& known, const ParameterStep& now, double rate) {
    const Value* const gradient = now.of_backward();
    const bool pushed = gradient != nullptr && gradient->finite() && !gradient->zero();
    // Of a hash alone it is not known whether it is zero: it counts as a gradient.
    if (gradient != nullptr && !gradient->zero()) {
      ++known.gradients;
      known.gradient = *gradient;
      if (gradient->finite())
        largest_gradient_ = std::max(largest_gradient_, gradient->stats.amax.as_f64());
      any_gradient_ = true;
    }
    known.zeros += gradient != nullptr && gradient->zero() ? 1 : 0;
    if (now.updates.empty()) return;
    any_updates_ = true;
    ++known.updates;
    const Value& after = *now.updates.back();
    if (known.seen) {
      if (after.stats.hash != known.last.stats.hash) {
        ++known.motions;
      } else if (pushed && rate > 0) {
        ++known.pushes;
        known.rate = rate;
      }
    }
    known.seen = true;
    known.last = after;
  }

  /// A module that is called before the model that contains it has another name then.
  [[nodiscard]] bool goes_by_another_name(const Known& known) const {
    return known.last.storage != 0 && std::ranges::any_of(parameters_, [&](const Entry& other) {
             return other.second.updates > 0 && other.second.last.storage == known.last.storage;
           });
  }

  Finding of(std::string_view id, Severity severity, const Surroundings& around,
             const Entry& entry) {
    Finding finding = about(id, severity, around, first_step_, entry.second.last);
    finding.slot = "param:" + std::string(around.names.text(entry.first.name));
    return finding;
  }

  bool tell_foreign(const Surroundings& around) {
    std::vector<const Entry*> foreign, idle;
    for (const Entry& entry : parameters_) {
      const Known& known = entry.second;
      if (is_foreign(around.names.text(entry.first.name))) {
        if (known.updates > 0) foreign.push_back(&entry);
      } else if (known.updates > 0) {
        return false;
      } else if (known.initial && !known.frozen && known.steps_called >= kLeastSteps) {
        idle.push_back(&entry);
      }
    }
    if (foreign.empty() || idle.empty()) return false;
    Finding finding = of("optimizer-of-others", Severity::kError, around, *idle.front());
    finding.text = "The optimizer updates " + tools::counted(foreign.size(), "tensor") +
                   " that no called module owns, while none of the model's " +
                   tools::counted(idle.size(), "parameter") + " is ever updated.";
    finding.evidence = {"in the optimizer: " + list_of(around, foreign),
                        "never updated: " + list_of(around, idle)};
    finding.cause =
        "the model was built again, copied, or given new parameters (a cast, a wrapper, "
        "load_state_dict(assign=True)) after the optimizer was made";
    finding.next = "make the optimizer after the last change of the model";
    report(std::move(finding));
    return true;
  }

  void tell_without(const Surroundings& around, const Entry& entry) {
    const Known& known = entry.second;
    const bool bias = around.names.text(entry.first.name) == "bias" && known.zeros > 0;
    Finding finding = of("no-gradient", bias ? Severity::kHint : Severity::kWarning, around, entry);
    finding.text =
        "Parameter " + parameter_name(around.names, entry.first) +
        (known.zeros > 0 ? " has gradients of zeros in all " : " has no gradient in all ") +
        tools::counted(steps_, "step") + " of training, although its module took part in " +
        std::to_string(known.steps_called) + ".";
    finding.evidence = {"requires a gradient, and an optimizer has it",
                        std::to_string(known.steps_passed) + " of " +
                            tools::counted(steps_, "step") +
                            " with a gradient of the module's output"};
    finding.cause =
        bias ? "the loss takes differences of outputs, in which the bias cancels; or nothing "
               "passes the module"
        : known.steps_passed > 0
            ? "the module does not use it, or a custom backward gives none"
            : "a detach(), .data, .item(), integer cast or no_grad() between the module "
              "and the loss; or its output is not used";
    finding.next =
        "look at what consumes the output of " + module_name(around.names, entry.first.scope);
    report(std::move(finding));
  }

  /// Why a parameter did not move, as far as its numbers say.
  enum class Stillness : uint8_t { kOther, kLostInShortType, kTiny };
  [[nodiscard]] Stillness stillness(const Known& known) const {
    const double gradient = known.gradient.stats.amax.as_f64();
    const double size = known.last.measured() ? known.last.stats.amax.as_f64() : 0;
    const double least = unit(known.last.dtype);
    if (gradient < kTinyShare * largest_gradient_) return Stillness::kTiny;
    if (!(size > 0) || gradient * known.rate >= least * size) {
      // Adam moves by about the learning rate, whatever the gradient.
      const bool lost = size > 0 && least > 0x1p-24 && known.rate < least * size;
      return lost ? Stillness::kLostInShortType : Stillness::kOther;
    }
    return least > 0x1p-24 ? Stillness::kLostInShortType : Stillness::kTiny;
  }

  void tell_unmoved(const Surroundings& around, const std::vector<const Entry*>& unmoved) {
    std::map<Stillness, std::vector<const Entry*>> by_reason;
    for (const Entry* entry : unmoved) by_reason[stillness(entry->second)].push_back(entry);
    for (const auto& [reason, entries] : by_reason) {
      const Entry& entry = *entries.front();
      const Known& known = entry.second;
      const bool one = entries.size() == 1;
      Finding finding =
          of("no-motion", reason == Stillness::kTiny ? Severity::kHint : Severity::kWarning, around,
             entry);
      finding.text = tools::counted(entries.size(), "parameter") + " (" + list_of(around, entries) +
                     ")" +
                     (one ? " gets gradients and updates, and never moves."
                          : " get gradients and updates, and never move.");
      finding.evidence = {parameter_name(around.names, entry.first) + ": " +
                              std::to_string(known.updates) +
                              " updates, the same after each: " + numbers_of(known.last),
                          "its gradient: " + numbers_of(known.gradient),
                          "largest learning rate " + tools::number_text(known.rate)};
      switch (reason) {
        case Stillness::kLostInShortType:
          finding.cause = "the update is smaller than a weight of " +
                          std::string(to_string(known.last.dtype)) +
                          " can follow, and is lost when it is rounded";
          finding.next = "keep weights of 32 bits for the optimizer, or round stochastically";
          break;
        case Stillness::kTiny:
          finding.cause = "a gradient that is rounding alone: the loss does not depend on it";
          finding.next = "leave it out of the model, if it is a bias before a normalisation";
          break;
        case Stillness::kOther:
          finding.cause = "its group has learning rate 0, or something writes the old value back";
          finding.next = "look at the optimizer's group of this parameter";
      }
      report(std::move(finding));
    }
  }

  /// @return the root module of a parameter: the longest of all roots that contains its module.
  format::StringId root_of(const Surroundings& around, format::StringId scope) const {
    const std::string_view path = around.names.text(scope);
    format::StringId best;
    for (const format::StringId root : roots_) {
      const std::string_view name = around.names.text(root);
      const bool inside =
          name.empty() || path == name || (path.starts_with(name) && path[name.size()] == '.');
      if (inside && (!best || name.size() >= around.names.text(best).size())) best = root;
    }
    return best;
  }

  void tell_left_out(const Surroundings& around, const std::vector<const Entry*>& left_out) {
    std::map<format::StringId, std::vector<const Entry*>> by_root;
    for (const Entry* entry : left_out)
      by_root[root_of(around, entry->first.scope)].push_back(entry);
    for (const auto& [root, entries] : by_root) {
      const auto updated = std::ranges::count_if(parameters_, [&, at = root](const Entry& entry) {
        return entry.second.updates > 0 && root_of(around, entry.first.scope) == at;
      });
      const bool exception = entries.size() < static_cast<size_t>(updated);
      Finding finding = of("no-motion", exception ? Severity::kWarning : Severity::kHint, around,
                           *entries.front());
      finding.text = tools::counted(entries.size(), "parameter") + " (" + list_of(around, entries) +
                     (entries.size() == 1 ? ") is" : ") are") +
                     " in no optimizer, although gradients pass " +
                     (entries.size() == 1 ? "its module." : "their modules.");
      finding.evidence = {
          std::to_string(updated) + " other parameters of the same root are updated",
          "gradients of the module's output in " +
              tools::counted(entries.front()->second.steps_passed, "step")};
      finding.cause =
          "a layer was added or replaced after the optimizer was made, or a list of "
          "parameters leaves it out";
      finding.next =
          "make the optimizer after the last change of the model; for a frozen part set "
          "requires_grad to False";
      report(std::move(finding));
    }
  }

  static std::string list_of(const Surroundings& around, const std::vector<const Entry*>& entries) {
    std::string text;
    for (size_t i = 0; i < std::min(entries.size(), kNamesTold); ++i)
      text += (i == 0 ? "" : ", ") + parameter_name(around.names, entries[i]->first);
    if (entries.size() > kNamesTold)
      text += " and " + std::to_string(entries.size() - kNamesTold) + " more";
    return text;
  }

  std::map<Parameter, Known> parameters_;
  std::set<format::StringId> roots_;
  std::map<format::StringId, std::string> classes_;  ///< of modules by their names
  double largest_gradient_ = 0;
  uint32_t steps_ = 0, first_step_ = format::kNoStep;
  bool any_updates_ = false, any_gradient_ = false;
};

}  // namespace

std::unique_ptr<Check> make_gradient_flow() { return std::make_unique<GradientFlow>(); }

}  // namespace convtrace::check
