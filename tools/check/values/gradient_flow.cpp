/// @file gradient_flow.cpp
/// no-gradient, no-motion, optimizer-of-others: parameters that a run never trained.
///
/// Why it is a fault: a parameter that asks for a gradient, belongs to a module that took part in
/// the forward pass of training and is in an optimizer was meant to be trained. Of one that is in
/// no optimizer although gradients pass its module, the same holds where it is an exception: where
/// most parameters of its root are left out, a part of the model was frozen by not handing it over,
/// which is only a hint. An optimizer that updates, in two steps and more and until the end, only
/// tensors without gradients of no module that was called, while gradients pass a model of which no
/// parameter moves, has another model's parameters.
/// Hints: a bias whose gradient is exactly zero (differences of two outputs cancel it); a module
/// whose output no recorded module takes (an auxiliary head); a gradient of rounding alone; an
/// optimizer with a group whose learning rate is 0.
/// Silent: a gradient that was not recorded of a parameter that moves (sparse ones); fewer than two
/// training steps with values; frozen parameters; modules that training never called; steps in
/// which every learning rate is 0; gradients that are not finite (a GradScaler passes over such a
/// step); foreign tensors with gradients (32-bit weights of a 16-bit model).
/// Not told apart: a parameter that is frozen after its module's first call.

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_set>

#include "tools/check/values/checks.h"
#include "tools/common/text.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::check {
namespace {

using format::Phase;

constexpr uint32_t kLeastSteps = 2;
constexpr size_t kNamesTold = 3;
/// Gradients that are smaller than this share of the run's largest are rounding.
constexpr double kTinyShare = 1e-6;

/// "group0.3": a tensor of an optimizer that no module owns.
bool is_foreign(std::string_view name) {
  return name.starts_with("group") && name.size() > 5 &&
         std::isdigit(static_cast<unsigned char>(name[5])) != 0 &&
         name.find('.') != std::string_view::npos;
}

constexpr double kUnitOfF32 = 0x1p-24;

class GradientFlow : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value* input : step.data) roots_.insert(input->place.scope);
    note_parameters(step, around);
    if (!step.trains) return;
    ++steps_;
    if (first_step_ == format::kNoStep) first_step_ = step.number;
    step_ = step.number;
    std::set<format::StringId> called;
    std::unordered_set<uint64_t> passed;  // inputs of modules that a gradient passes
    for (const auto& [key, call] : step.calls) {
      if (key.phase != Phase::kForward && key.phase != Phase::kRecompute) continue;
      called.insert(key.scope);
      if (!step.grad_outputs.contains(key.scope)) continue;
      for (const Value* input : call.inputs) passed.insert(input->stats.hash);
    }
    // What was computed until here may lead to an output that a module takes without its gradient.
    uint64_t cut_at = 0;
    std::map<format::StringId, uint64_t> first_output;
    for (const auto& [key, call] : step.calls) {
      if (key.phase != Phase::kForward || step.grad_outputs.contains(key.scope)) continue;
      for (const Value* output : call.outputs) {
        first_output.try_emplace(key.scope, output->seq);
        if (passed.contains(output->stats.hash)) cut_at = std::max(cut_at, output->seq);
      }
    }
    note_others(step, around, called);
    const double rate = around.facts.largest_rate().value_or(1);
    for (auto& [parameter, known] : parameters_) {
      known.steps_called += called.contains(parameter.scope) ? 1 : 0;
      known.steps_passed += step.grad_outputs.contains(parameter.scope) ? 1 : 0;
      const auto output = first_output.find(parameter.scope);
      known.consumed |= output != first_output.end() && output->second <= cut_at;
      const auto now = step.parameters.find(parameter);
      if (now != step.parameters.end()) follow(known, now->second, rate);
    }
  }

  void end(const Surroundings& around) override {
    if (steps_ < kLeastSteps) return;
    if (any_updates_ && (any_initial_ || others_steps_ >= kLeastSteps)) look("optimizer-of-others");
    if (tell_foreign(around)) return;
    std::unordered_set<uint64_t> updated;  // storages
    for (const Entry& entry : parameters_)
      if (entry.second.updates > 0 && entry.second.last.storage != 0)
        updated.insert(entry.second.last.storage);
    std::vector<const Entry*> without, unmoved, left_out;
    for (const Entry& entry : parameters_) {
      const Known& known = entry.second;
      if (known.frozen || is_foreign(around.names.text(entry.first.name))) continue;
      // A module that is called before the model that contains it has another name then.
      if (known.updates == 0 && updated.contains(known.last.storage)) continue;
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
    tell_without(around, without);
    tell_unmoved(around, unmoved);
    tell_left_out(around, left_out);
  }

 private:
  struct Known {
    Value last{};      ///< as it was last recorded
    Value gradient{};  ///< the last one that was not zero
    bool frozen = false, initial = false, seen = false;
    bool consumed = false;  ///< a module that a gradient passes takes its module's output
    uint32_t steps_called = 0, steps_passed = 0;
    uint32_t last_update = 0;  ///< a step
    uint32_t updates = 0;      ///< records behind an optimizer's step
    uint32_t motions = 0;      ///< updates that changed it
    uint32_t gradients = 0;    ///< that were not zero
    uint32_t zeros = 0;        ///< gradients that were
    uint32_t pushes = 0;       ///< updates that should have changed it
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
        known.initial = any_initial_ = true;
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
    known.last_update = step_;
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

  Finding of(std::string_view id, Severity severity, const Surroundings& around,
             const Entry& entry) {
    Finding finding = about(id, severity, around, first_step_, entry.second.last);
    finding.slot = "param:" + std::string(around.names.text(entry.first.name));
    return finding;
  }

  /// Counts the steps in which an optimizer updates nothing that computed.
  void note_others(const StepValues& step, const Surroundings& around,
                   const std::set<format::StringId>& called) {
    bool own = false;
    std::vector<Parameter> others;
    for (const auto& [parameter, now] : step.parameters) {
      if (now.updates.empty()) continue;
      own |= now.gradient != nullptr ||
             (called.contains(parameter.scope) && !is_foreign(around.names.text(parameter.name)));
      others.push_back(parameter);
    }
    if (own) others_steps_ = 0;
    if (own || others.empty() || step.grad_outputs.empty()) return;
    if (others_steps_++ == 0) others_since_ = step.number;
    others_ = std::move(others);
  }

  bool tell_foreign(const Surroundings& around) {
    if (others_steps_ < kLeastSteps) return false;
    std::vector<const Entry*> foreign, idle;
    for (const Entry& entry : parameters_) {
      const Known& known = entry.second;
      const bool other = std::ranges::find(others_, entry.first) != others_.end();
      if (other) {
        foreign.push_back(&entry);
      } else if (!known.frozen && known.steps_called > 0 &&
                 (known.updates == 0 || known.last_update < others_since_)) {
        idle.push_back(&entry);
      }
    }
    if (foreign.empty() || idle.empty()) return false;
    const bool any_update = others_since_ != first_step_;
    Finding finding = of("optimizer-of-others", Severity::kError, around, *idle.front());
    finding.step = others_since_;
    finding.text = "The optimizer updates " + tools::counted(foreign.size(), "tensor") +
                   " of no module that computes, while none of the model's " +
                   tools::counted(idle.size(), "parameter") +
                   (any_update ? " is updated any more." : " is ever updated.");
    finding.evidence = {"in the optimizer: " + list_of(around, foreign),
                        "not updated: " + list_of(around, idle)};
    finding.cause =
        "the model was built again, copied, or given new parameters (a cast, a wrapper, "
        "load_state_dict(assign=True)) after the optimizer was made";
    finding.next = "make the optimizer after the last change of the model";
    report(std::move(finding));
    return true;
  }

  /// Why a parameter has no gradient, as far as the records say.
  enum class Lack : uint8_t { kCutOff, kZeros, kUnused, kCancelled };
  [[nodiscard]] static Lack lack(const Surroundings& around, const Entry& entry) {
    const Known& known = entry.second;
    if (known.zeros > 0)
      return around.names.text(entry.first.name) == "bias" ? Lack::kCancelled : Lack::kZeros;
    return known.steps_passed > 0 || known.consumed ? Lack::kCutOff : Lack::kUnused;
  }

  void tell_without(const Surroundings& around, const std::vector<const Entry*>& without) {
    std::map<Lack, std::vector<const Entry*>> by_reason;
    for (const Entry* entry : without) by_reason[lack(around, *entry)].push_back(entry);
    for (const auto& [reason, entries] : by_reason) {
      const bool sure = reason == Lack::kCutOff || reason == Lack::kZeros;
      const Known& known = entries.front()->second;
      Finding finding =
          of("no-gradient", sure ? Severity::kWarning : Severity::kHint, around, *entries.front());
      finding.text =
          tools::counted(entries.size(), "parameter") + " (" + list_of(around, entries) + ")" +
          (entries.size() == 1 ? " has " : " have ") +
          (known.zeros > 0 ? "gradients of zeros in all of " : "no gradient in any of ") +
          tools::counted(steps_, "recorded training step") + ".";
      finding.evidence = {
          "an optimizer has each, and none was frozen when its module was first called",
          module_name(around.names, entries.front()->first.scope) + " was called in " +
              std::to_string(known.steps_called) + " steps, and got a gradient of its output in " +
              std::to_string(known.steps_passed)};
      const std::string consumer = "look at what takes the output of " +
                                   module_name(around.names, entries.front()->first.scope);
      switch (reason) {
        case Lack::kCutOff:
          finding.cause =
              known.steps_passed > 0
                  ? "the module does not use it, or a custom backward gives none"
                  : "a detach(), .data, .item(), integer cast or no_grad() before the loss";
          finding.next = consumer;
          break;
        case Lack::kZeros:
          finding.cause = "a factor that is 0 behind the module, or units that never fire";
          finding.next = consumer;
          break;
        case Lack::kUnused:
          finding.cause =
              "no recorded module takes its output: the loss does not use it, or something cuts it "
              "off on the way";
          finding.next = consumer + "; where nothing is meant to, set requires_grad to False";
          break;
        case Lack::kCancelled:
          finding.cause =
              "the loss takes differences of outputs, in which the bias cancels; or no unit of "
              "the module fires";
          finding.next = "leave the bias out, if it cancels";
      }
      report(std::move(finding));
    }
  }

  /// Why a parameter did not move, as far as its numbers say.
  enum class Stillness : uint8_t { kOther, kLostInShortType, kTiny, kRounding };
  [[nodiscard]] Stillness stillness(const Known& known, const Surroundings& around) const {
    const double gradient = known.gradient.stats.amax.as_f64();
    const double size = known.last.measured() ? known.last.stats.amax.as_f64() : 0;
    // A smaller update is lost.
    const double least = std::max(diff::unit_roundoff(known.last.dtype), kUnitOfF32);
    if (gradient < kTinyShare * largest_gradient_) return Stillness::kRounding;
    // Adam and its like move by about the learning rate, whatever the gradient.
    const double step = around.facts.all_descend() ? gradient * known.rate : known.rate;
    if (!(size > 0) || step >= least * size) return Stillness::kOther;
    return least > kUnitOfF32 ? Stillness::kLostInShortType : Stillness::kTiny;
  }

  void tell_unmoved(const Surroundings& around, const std::vector<const Entry*>& unmoved) {
    std::map<Stillness, std::vector<const Entry*>> by_reason;
    for (const Entry* entry : unmoved) by_reason[stillness(entry->second, around)].push_back(entry);
    for (const auto& [reason, entries] : by_reason) {
      const Entry& entry = *entries.front();
      const Known& known = entry.second;
      const bool one = entries.size() == 1;
      const bool meant = reason == Stillness::kOther && around.facts.some_rate_is_zero();
      Finding finding = of(
          "no-motion", reason >= Stillness::kTiny || meant ? Severity::kHint : Severity::kWarning,
          around, entry);
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
          finding.cause =
              "the update is too small for a weight of this size: a small learning rate";
          finding.next = "compare learning rate and gradient with those of other parameters";
          break;
        case Stillness::kRounding:
          finding.cause = "a gradient that is rounding alone: the loss does not depend on it";
          finding.next =
              "leave it out of the model, if it is a bias before a normalisation; else look at "
              "whether the "
              "loss depends on it";
          break;
        case Stillness::kOther:
          finding.cause =
              meant ? "an optimizer has a group with learning rate 0, which may be meant"
                    : "something writes the old value back, or its group has learning rate 0";
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
  std::vector<Parameter> others_;  ///< that an optimizer updates and no module uses
  uint32_t others_steps_ = 0, others_since_ = 0;
  uint32_t step_ = 0, steps_ = 0, first_step_ = format::kNoStep;
  bool any_updates_ = false, any_gradient_ = false, any_initial_ = false;
};

}  // namespace

std::unique_ptr<Check> make_gradient_flow() { return std::make_unique<GradientFlow>(); }

}  // namespace convtrace::check
