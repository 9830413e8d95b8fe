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
/// Hints: a bias whose gradient is exactly zero (differences of two outputs cancel it); a parameter
/// without a gradient beside one that has them, if no loss brought their module a gradient of its
/// output: the loss of a gradient penalty is made of gradients alone, which what is added to an output
/// does not change; a module
/// whose output no recorded module takes (an auxiliary head); a gradient of rounding alone; an
/// optimizer with a group whose learning rate is 0.
/// Silent: a gradient that was not recorded of a parameter that moves (sparse ones); fewer than two
/// training steps with values; frozen parameters; parameters that the program itself changes twice or
/// more (another process updates and sends them); modules that training never called; steps in
/// which every learning rate is 0; gradients that are not finite (a GradScaler passes over such a
/// step); foreign tensors with gradients (32-bit weights of a 16-bit model).
/// Not told apart: a parameter that is frozen after its module's first call.

#include <algorithm>
#include <map>
#include <unordered_set>

#include "tools/check/model/checks.h"
#include "tools/check/values/parameter_ledger.h"
#include "tools/common/text.h"
#include "tools/trace/model/distance.h"

namespace convtrace::check {
namespace {

constexpr size_t kNamesTold = 3;
/// Gradients that are smaller than this share of the largest of their step are rounding.
constexpr double kTinyShare = 1e-6;

constexpr double kUnitOfF32 = 0x1p-24;

class GradientFlow : public Check {
  static constexpr uint32_t kLeastSteps = 2;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    ledger_.see(step, around);
  }

  void end(const Surroundings& around) override {
    if (ledger_.steps < kLeastSteps) return;
    if (ledger_.any_updates && (ledger_.any_initial || ledger_.others.steps >= kLeastSteps))
      look("optimizer-of-others");
    if (tell_foreign(around)) return;
    std::unordered_set<uint64_t> updated;  // storages
    for (const Entry& entry : ledger_.parameters)
      if (entry.second.updates > 0 && entry.second.last.storage != 0)
        updated.insert(entry.second.last.storage);
    // A program that writes all parameters, as for weight decay, is no optimizer of some.
    const bool writes_all = std::ranges::any_of(ledger_.parameters, [](const Entry& entry) {
      return entry.second.updates > 0 && entry.second.writes >= kLeastSteps;
    });
    std::vector<const Entry*> without, unmoved, left_out;
    for (const Entry& entry : ledger_.parameters) {
      const Known& known = entry.second;
      if (known.frozen || is_foreign(around.names.text(entry.first.name))) continue;
      // A module that is called before the model that contains it has another name then.
      if (known.updates == 0 && updated.contains(known.last.storage)) continue;
      if (known.last.stats.count == 0) continue;  // it has no element
      if (known.steps_called >= kLeastSteps && ledger_.any_gradient) look("no-gradient");
      if (known.motions > 0 || known.pushes >= kLeastSteps) look("no-motion");
      if (known.updates == 0) {
        if (ledger_.any_updates && known.initial && known.steps_passed >= kLeastSteps &&
            (writes_all || known.writes < kLeastSteps))
          left_out.push_back(&entry);
      } else if (known.steps_called >= kLeastSteps && known.gradients == 0 &&
                 ledger_.any_gradient && (known.zeros > 0 || known.motions == 0)) {
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
  using Known = ParameterLedger::Known;
  using Entry = ParameterLedger::Entry;

  Finding of(std::string_view id, Severity severity, const Surroundings& around,
             const Entry& entry) {
    Finding finding = about(id, severity, around, ledger_.first_step, entry.second.last);
    finding.slot = "param:" + std::string(around.names.text(entry.first.name));
    return finding;
  }

  bool tell_foreign(const Surroundings& around) {
    if (ledger_.others.steps < kLeastSteps) return false;
    std::vector<const Entry*> foreign, idle;
    for (const Entry& entry : ledger_.parameters) {
      const Known& known = entry.second;
      const bool other = std::ranges::find(ledger_.others.parameters, entry.first) !=
                         ledger_.others.parameters.end();
      if (other) {
        foreign.push_back(&entry);
      } else if (!known.frozen && known.steps_called > 0 &&
                 (known.updates == 0 || known.last_update < ledger_.others.since)) {
        idle.push_back(&entry);
      }
    }
    if (foreign.empty() || idle.empty()) return false;
    const bool any_update = ledger_.others.since != ledger_.first_step;
    Finding finding = of("optimizer-of-others", Severity::kError, around, *idle.front());
    finding.step = ledger_.others.since;
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
  enum class Lack : uint8_t { kCutOff, kZeros, kUnused, kCancelled, kOnlyAdded };
  [[nodiscard]] Lack lack(const Surroundings& around, const Entry& entry) const {
    const Known& known = entry.second;
    if (known.zeros == 0 && known.steps_passed > 0 && known.steps_of_loss == 0 &&
        any_beside(entry.first.scope))
      return Lack::kOnlyAdded;
    if (known.zeros > 0)
      return around.names.text(entry.first.name) == "bias" ? Lack::kCancelled : Lack::kZeros;
    return known.steps_passed > 0 || known.consumed ? Lack::kCutOff : Lack::kUnused;
  }

  /// @return whether a parameter of the module has gradients.
  [[nodiscard]] bool any_beside(format::StringId scope) const {
    return std::ranges::any_of(ledger_.parameters, [scope](const Entry& entry) {
      return entry.first.scope == scope && entry.second.gradients > 0;
    });
  }

  /// @return the steps that were judged, in words: those that called one of the modules.
  [[nodiscard]] std::string steps_text(const std::vector<const Entry*>& entries) const {
    uint64_t called = 0;
    for (const Entry* entry : entries)
      called = std::max<uint64_t>(called, entry->second.steps_called);
    const bool is_part = called > 0 && called < ledger_.steps;
    return tools::counted(is_part ? called : ledger_.steps, "recorded training step") +
           (is_part ? " with a call of the module" : "");
  }

  void tell_without(const Surroundings& around, const std::vector<const Entry*>& without) {
    std::map<Lack, std::vector<const Entry*>> by_reason;
    for (const Entry* entry : without) by_reason[lack(around, *entry)].push_back(entry);
    for (const auto& [reason, entries] : by_reason) {
      const bool sure = reason == Lack::kCutOff || reason == Lack::kZeros;
      const Known& known = entries.front()->second;
      Finding finding =
          of("no-gradient", sure ? Severity::kWarning : Severity::kHint, around, *entries.front());
      finding.text = tools::counted(entries.size(), "parameter") + " (" + list_of(around, entries) +
                     ")" + (entries.size() == 1 ? " has " : " have ") +
                     (known.zeros > 0 ? "gradients of zeros in all of " +
                                            tools::counted(known.zeros, "update") + "."
                                      : "no gradient in any of " + steps_text(entries) + ".");
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
          break;
        case Lack::kOnlyAdded:
          finding.cause =
              "the loss is made of gradients of the module's output (a gradient penalty), which a "
              "number that is added to it does not change";
          finding.next = "nothing, if no other loss is meant to reach the module";
      }
      report(std::move(finding));
    }
  }

  /// Why a parameter did not move, as far as its numbers say.
  enum class Stillness : uint8_t { kOther, kSwamped, kLostInShortType, kTiny, kRounding };
  [[nodiscard]] Stillness stillness(const Known& known, const Surroundings& around) const {
    const double gradient = known.gradient.stats.amax.as_f64();
    const double size = known.last.measured() ? known.last.stats.amax.as_f64() : 0;
    // A smaller update is lost.
    const double least = std::max(diff::unit_roundoff(known.last.dtype), kUnitOfF32);
    if (known.share < kTinyShare) return Stillness::kRounding;
    if (!around.facts.all_descend() && gradient < kTinyShare * known.largest)
      return Stillness::kSwamped;
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
        case Stillness::kSwamped:
          finding.cause = "one gradient of it was " + tools::number_text(known.largest, 3) +
                          ", beside whose square the later ones count for nothing";
          finding.next = "clip gradients, or leave out such a step";
          break;
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

  void tell_left_out(const Surroundings& around, const std::vector<const Entry*>& left_out) {
    std::map<format::StringId, std::vector<const Entry*>> by_root;
    for (const Entry* entry : left_out)
      by_root[ledger_.root_of(around, entry->first.scope)].push_back(entry);
    for (const auto& [root, entries] : by_root) {
      const auto updated =
          std::ranges::count_if(ledger_.parameters, [&, at = root](const Entry& entry) {
            return entry.second.updates > 0 && ledger_.root_of(around, entry.first.scope) == at;
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

  ParameterLedger ledger_;
};

}  // namespace

std::unique_ptr<Check> make_gradient_flow() { return std::make_unique<GradientFlow>(); }

}  // namespace convtrace::check
