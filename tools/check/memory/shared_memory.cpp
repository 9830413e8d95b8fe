/// @file shared_memory.cpp
/// shared-memory: two parameters of an optimizer, their gradients or their states lie in one
/// memory.
///
/// Why it is a fault: what the optimizer does for the one happens to the other, too: a parameter
/// moves twice, a gradient contains the other's, an average is of both.
/// Judged: the facts `shares.SLOT`, for which the observer compares addresses exactly. An error
/// needs that both owners use the memory: a parameter by a gradient of its own; a gradient that was
/// shared in the step before, or that lies in one memory of two storages, by a module that a
/// gradient passed; a state by one write for each owner in a step of an optimizer of torch, or by
/// two optimizers that write it in turn. An accumulating state, by its name, that lies in the
/// memory of a parameter, or of a gradient that the next step uses, is a warning.
/// Or an average of weights (a teacher) lies in the memory of the weights themselves: the program
/// multiplies them by one factor below 1 after each update. Judged: the records `param_written:NAME`,
/// in three steps with one factor, and that another module's parameters have that memory. A decay by
/// the program's own hand alone is silent.
/// Silent: parts side by side; gradients for which autograd used one memory, as it may, unless
/// clipping multiplies them or one of them no longer is the result of an op; zeros; step counters
/// that all parameters share.
/// Hint: shared memory without a known effect: parameters whose common memory plain gradient
/// descent moves by the sum of their gradients; a gradient that the program shares on purpose. Not
/// told apart: an optimizer of the program's own that keeps a workspace among its states.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using format::Phase;

constexpr std::string_view kShares = "shares.";

/// A fact of the observer: "optimizer 0, 256 bytes, whole, kept, grad:weight of fc1".
struct Shared {
  format::StringId scope;
  std::string_view slot, other_slot, other_scope, bytes, word;
  unsigned optimizer = 0;
  bool whole = false;
};

std::optional<Shared> read_shared(const format::Definitions& names, const FactSeen& fact) {
  const std::string_view name = names.text(fact.name);
  std::string_view text = fact.value;
  if (!name.starts_with(kShares) || !cut(text, "optimizer ")) return std::nullopt;
  const auto number = cut(text, ", "), bytes = cut(text, ", "), extent = cut(text, ", "),
             word = cut(text, ", "), slot = cut(text, " of ");
  if (!slot) return std::nullopt;
  Shared shared{.scope = fact.scope,
                .slot = name.substr(kShares.size()),
                .other_slot = *slot,
                .other_scope = text,
                .bytes = *bytes,
                .word = *word,
                .whole = *extent == "whole"};
  std::from_chars(number->data(), number->data() + number->size(), shared.optimizer);
  return shared;
}

/// "weight" of "grad:weight" and of "state:weight.exp_avg"; "exp_avg" of the latter.
std::string_view parameter_of(std::string_view slot) {
  const bool state = slot.starts_with("state:");
  slot.remove_prefix(std::min(slot.find(':') + 1, slot.size()));
  return state ? slot.substr(0, slot.rfind('.')) : slot;
}
std::string_view key_of(std::string_view slot) { return slot.substr(slot.rfind('.') + 1); }

/// @return whether a state of this name accumulates over steps.
bool accumulates(std::string_view key) {
  constexpr std::string_view kWords[] = {"avg", "mom", "vel",  "sum",  "sq",
                                         "ema", "acc", "mean", "slow", "prev"};
  constexpr std::string_view kLetters[] = {"m", "v", "mu", "nu", "buf", "buffer"};
  const auto contains = [key](std::string_view word) { return key.find(word) != key.npos; };
  return std::ranges::any_of(kWords, contains) ||
         std::ranges::find(kLetters, key) != std::end(kLetters);
}

class SharedMemory : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    look_for_average(step, around);
    if (step.parameters.size() > 1 && !around.facts.settings("class").empty())
      look("shared-memory");
    std::map<std::pair<char, Severity>, Finding> found;  // by the kind of slot: one each
    for (const FactSeen& fact : step.facts) {
      const std::optional<Shared> shared = read_shared(around.names, fact);
      if (!shared) continue;
      const Owners owners = owners_of(step, around, *shared);
      const std::optional<Severity> severity = judge(step, around, *shared, owners);
      if (!severity) continue;
      const auto [entry, is_new] = found.try_emplace({shared->slot.front(), *severity});
      if (is_new) entry->second = finding_of(step, around, *shared, *severity);
      entry->second.evidence.push_back(line_of(around, *shared));
    }
    for (auto& [_, finding] : found) {
      if (finding.evidence.size() > kMostLines) {
        const size_t more = finding.evidence.size() - kMostLines;
        finding.evidence.resize(kMostLines);
        finding.evidence.push_back("and " + tools::counted(more, "further pair"));
      }
      report(std::move(finding));
    }
  }

 private:
  static constexpr size_t kMostLines = 5;
  static constexpr size_t kLeastAveraged = 2;  ///< parameters
  static constexpr unsigned kLeastSteps = 3;
  static constexpr double kSameFactor = 0.1;  ///< of what it takes away

  /// A parameter as an optimizer left it, and what the program has written there since.
  struct Updated {
    Parameter parameter;
    uint32_t step = 0;
    double sum = 0, l1 = 0, l2 = 0, amax = 0;
    const Value* written = nullptr;

    [[nodiscard]] double factor() const { return written->stats.l1.as_f64() / l1; }
    /// @return whether all elements may have been multiplied by a factor.
    [[nodiscard]] bool is_multiplied() const {
      const double by = factor(), allowed = kSameFactor * (1 - by);
      const format::Stats& now = written->stats;
      return by < 1 && std::abs(now.sum.as_f64() - by * sum) <= allowed * l1 &&
             std::abs(now.l2 - by * l2) <= allowed * l2 &&
             std::abs(now.amax.as_f64() - by * amax) <= allowed * amax;
    }
  };

  void look_for_average(const StepValues& step, const Surroundings& around) {
    judge_average(step, around);
    for (const auto& [parameter, seen] : step.parameters) {
      if (seen.updates.empty()) continue;
      const Value& now = *seen.updates.back();
      if (now.storage == 0 || !now.finite()) continue;
      updated_[{now.storage, now.offset}] = {.parameter = parameter,
                                             .step = step.number,
                                             .sum = now.stats.sum.as_f64(),
                                             .l1 = now.stats.l1.as_f64(),
                                             .l2 = now.stats.l2,
                                             .amax = now.stats.amax.as_f64()};
      last_update_ = step.number;
    }
    std::erase_if(updated_, [this](const auto& one) { return one.second.step != last_update_; });
  }

  void judge_average(const StepValues& step, const Surroundings& around) {
    std::vector<Updated*> written;
    const Updated* elsewhere = nullptr;
    for (const Value& value : step.values) {
      if (value.role != Role::kWritten || value.storage == 0 || !value.finite()) continue;
      const auto known = updated_.find({value.storage, value.offset});
      if (known == updated_.end() || !(known->second.l1 > 0)) continue;
      Updated& one = known->second;
      if (one.written == nullptr) written.push_back(&one);
      if (&one == elsewhere) continue;
      one.written = &value;
      if (one.parameter != Parameter{value.place.scope, value.name}) elsewhere = &one;
    }
    if (written.empty()) return;
    const double factor = written.front()->factor();
    const auto is_alike = [factor](double other) {
      return std::abs(other - factor) <= kSameFactor * (1 - factor);
    };
    const auto all = static_cast<size_t>(
        std::ranges::count_if(updated_, [](const auto& one) { return one.second.l1 > 0; }));
    const bool is_average = elsewhere != nullptr && all >= kLeastAveraged &&
                            written.size() == all &&
                            std::ranges::all_of(written, [&](const Updated* one) {
                              return one->is_multiplied() && is_alike(one->factor());
                            });
    averaged_ = !is_average ? 0 : is_alike(factor_) ? averaged_ + 1 : 1;
    factor_ = factor;
    if (averaged_ == kLeastSteps && !average_told_) tell_average(step, around, *elsewhere, all);
    for (Updated* one : written) one->written = nullptr;
  }

  void tell_average(const StepValues& step, const Surroundings& around, const Updated& first,
                    size_t all) {
    average_told_ = true;
    // A decay by hand beside another module in that memory looks the same.
    Finding finding = about("shared-memory", Severity::kHint, around, step.number, *first.written);
    const std::string name = parameter_name(around.names, first.parameter);
    finding.text = "An average of weights lies in the memory of the weights themselves: " + name +
                   " and " + tools::counted(all - 1, "other") + " are multiplied by " +
                   tools::number_text(factor_) + " after each update.";
    const Parameter there{first.written->place.scope, first.written->name};
    finding.evidence = {parameter_name(around.names, there) + " has the memory of " + name};
    finding.cause = "a teacher that is made by p.data = q.data or by load_state_dict(assign=True)";
    finding.next = "make it by copy.deepcopy";
    report(std::move(finding));
  }

  /// The step's records of both parameters.
  struct Owners {
    const ParameterStep *second = nullptr, *first = nullptr;
    std::vector<const Value*> passed_second{}, passed_first{};  ///< gradients of module outputs
    bool one_module = false;

    [[nodiscard]] bool both_have_gradients() const {
      const auto has = [](const ParameterStep* one) {
        return one != nullptr && one->gradient != nullptr && !one->gradient->zero();
      };
      return has(first) && has(second);
    }
    [[nodiscard]] bool both_passed() const {
      return !passed_first.empty() && !passed_second.empty();
    }
    [[nodiscard]] bool passed_by_equal() const {
      return std::ranges::any_of(passed_first, [this](const Value* a) {
        return std::ranges::any_of(passed_second,
                                   [a](const Value* b) { return a->stats.hash == b->stats.hash; });
      });
    }
  };

  static Owners owners_of(const StepValues& step, const Surroundings& around,
                          const Shared& shared) {
    Owners owners;
    const format::Definitions& names = around.names;
    const std::string_view scope = names.text(shared.scope);
    const auto is = [&names](const Parameter& parameter, std::string_view of,
                             std::string_view slot) {
      return names.text(parameter.scope) == of && names.text(parameter.name) == parameter_of(slot);
    };
    for (const auto& [parameter, seen] : step.parameters) {
      if (is(parameter, scope, shared.slot)) owners.second = &seen;
      if (is(parameter, shared.other_scope, shared.other_slot)) owners.first = &seen;
    }
    for (const auto& [module, passed] : step.grad_outputs) {
      if (names.text(module) == scope) owners.passed_second = passed;
      if (names.text(module) == shared.other_scope) owners.passed_first = passed;
    }
    owners.one_module = scope == shared.other_scope;
    return owners;
  }

  static std::optional<Severity> judge(const StepValues& step, const Surroundings& around,
                                       const Shared& shared, const Owners& owners) {
    switch (shared.slot.front()) {
      case 'p': return of_parameters(around, shared, owners);
      case 'g': return of_gradients(step, shared, owners);
      case 's': return of_states(around, shared, owners);
      default: return std::nullopt;
    }
  }

  /// @return whether a state shares the memory of a parameter.
  static bool is_parameter(const Shared& shared) {
    return shared.slot.front() == 's' && shared.other_slot.starts_with("param:");
  }

  /// @return whether a state shares the memory of a gradient, which the next backward pass
  /// overwrites.
  static bool is_gradient(const Shared& shared) {
    return shared.slot.front() == 's' && shared.other_slot.starts_with("grad:");
  }

  static Severity of_parameters(const Surroundings& around, const Shared& shared,
                                const Owners& owners) {
    if (!owners.both_have_gradients()) return Severity::kHint;
    const auto is_zero = [](const auto& one) { return Facts::number(one.second) == 0.0; };
    const bool adds_up = around.facts.all_descend() &&
                         std::ranges::all_of(around.facts.settings("weight_decay"), is_zero);
    return shared.whole && adds_up ? Severity::kHint : Severity::kError;
  }

  /// @return whether a gradient differs from the value that an op's backward returned in its
  /// memory.
  static bool changed(const StepValues& step, const ParameterStep& owner) {
    const Value* returned = nullptr;
    for (const Value& value : step.values) {
      if (value.role == Role::kGradInput && value.storage == owner.gradient->storage &&
          value.address == owner.gradient->address && value.shape == owner.gradient->shape)
        returned = &value;
    }
    return returned != nullptr && returned->stats.hash != owner.of_backward()->stats.hash;
  }

  static std::optional<Severity> of_gradients(const StepValues& step, const Shared& shared,
                                              const Owners& owners) {
    if (!owners.both_have_gradients()) return std::nullopt;
    const Value *const unclipped = owners.second->unclipped, &taken = *owners.second->gradient;
    const bool multiplied = unclipped != nullptr && unclipped->stats.hash != taken.stats.hash;
    if (shared.word == "kept" && owners.both_passed()) return Severity::kError;
    // The program made two storages over one memory, and placed both values there.
    if (shared.word == "foreign")
      return owners.both_passed() && !owners.passed_by_equal() ? Severity::kError
                                                               : Severity::kWarning;
    if (shared.word == "new") {
      // Code that overwrites gradients on purpose changes both.
      const bool overwritten =
          !shared.whole && changed(step, *owners.first) != changed(step, *owners.second);
      return multiplied || overwritten ? std::optional(Severity::kWarning) : std::nullopt;
    }
    const bool own = owners.both_passed() && !owners.one_module && !owners.passed_by_equal();
    return own || multiplied ? Severity::kWarning : Severity::kHint;
  }

  static std::optional<Severity> of_states(const Surroundings& around, const Shared& shared,
                                           const Owners& owners) {
    if (is_parameter(shared))
      return accumulates(key_of(shared.slot)) ? std::optional(Severity::kWarning) : std::nullopt;
    if (is_gradient(shared)) {
      const std::string_view key = key_of(shared.slot);
      const bool meant = key.find("grad") != std::string_view::npos || !accumulates(key);
      return meant ? std::nullopt : std::optional(Severity::kWarning);
    }
    const auto& classes = around.facts.settings("class");
    const auto kind = classes.find({shared.optimizer, 0});
    const bool torchs = kind != classes.end() && kind->second.starts_with("torch.optim.");
    const bool twice = shared.word == "written" && owners.both_have_gradients();
    if (!twice && shared.word != "in turn")
      return torchs ? std::optional(Severity::kHint) : std::nullopt;
    if (torchs) return Severity::kError;
    const bool carries = accumulates(key_of(shared.slot)) && accumulates(key_of(shared.other_slot));
    return carries ? Severity::kWarning : Severity::kHint;
  }

  static std::string owner_name(std::string_view scope, std::string_view slot) {
    const std::string name(parameter_of(slot));
    return scope.empty() ? name : std::string(scope) + "." + name;
  }

  static std::string thing(std::string_view slot) {
    switch (slot.front()) {
      case 'p': return "Parameter ";
      case 'g': return "The gradient of ";
      default: return "State " + std::string(key_of(slot)) + " of ";
    }
  }

  static std::string line_of(const Surroundings& around, const Shared& shared) {
    const std::string what =
        shared.slot.front() == 's' ? std::string(key_of(shared.slot)) + " of " : "";
    return what + owner_name(shared.other_scope, shared.other_slot) + " and " +
           owner_name(around.names.text(shared.scope), shared.slot) + ": " +
           std::string(shared.bytes) + " in common" + (shared.whole ? ", all" : "");
  }

  static Finding finding_of(const StepValues& step, const Surroundings& around,
                            const Shared& shared, Severity severity) {
    const std::string first = owner_name(shared.other_scope, shared.other_slot);
    std::string lower = thing(shared.other_slot);
    lower.front() = static_cast<char>(lower.front() | 0x20);
    Finding finding{.id = "shared-memory", .severity = severity, .rank = around.rank};
    finding.step = step.number;
    finding.phase = shared.slot.front() == 'g' ? Phase::kBackward : Phase::kOptimizer;
    finding.scope = around.names.text(shared.scope);
    finding.slot = shared.slot;
    finding.text = thing(shared.slot) + owner_name(*finding.scope, shared.slot) + " lies in " +
                   (shared.whole ? "the memory of " : "part of the memory of ") + lower + first +
                   consequence(shared, severity);
    explain(shared, finding);
    return finding;
  }

  static std::string consequence(const Shared& shared, Severity severity) {
    if (severity == Severity::kHint) return ".";
    switch (shared.slot.front()) {
      case 'p': return ", and the optimizer updates both: that memory moves twice in a step.";
      case 'g':
        return shared.word == "kept"   ? ": it contains the gradients of both."
               : shared.word == "same" ? ", although gradients of their own passed both modules."
               : shared.word == "foreign"
                   ? ", each in a storage of its own over it: what came last is in both."
                   : ", and what writes one writes both.";
      default:
        if (is_parameter(shared)) return ": what is to hold earlier values has those of now.";
        if (is_gradient(shared))
          return ": the backward pass writes what is to hold earlier values.";
        return shared.word == "in turn" ? ": two optimizers write it in turn."
                                        : ", and the optimizer writes it for each of them.";
    }
  }

  static void explain(const Shared& shared, Finding& finding) {
    switch (shared.slot.front()) {
      case 'p':
        finding.cause = shared.whole
                            ? "one tensor was given to two Parameters (p2.data = p1.data), or a "
                              "model was built over the memory of another one"
                            : "wrong offsets in a flat buffer of parameters";
        finding.next = shared.whole
                           ? "tie them by one Parameter (b.weight = a.weight), or give one a copy"
                           : "compare the offsets with the sizes of the parameters";
        return;
      case 'g':
        finding.cause =
            shared.word == "foreign" ? "an op that gives out one workspace from each of its calls "
                                       "(from_blob, from_numpy)"
            : shared.whole ? "p2.grad = p1.grad, or a buffer of gradients that is found by "
                             "shape or name"
                           : "wrong offsets in a flat buffer of gradients";
        finding.next = "look at where gradients are assigned, and give each parameter its own";
        return;
      default:
        if (is_parameter(shared)) {
          finding.cause = "a state that is made of a parameter without a copy: p.detach(), p.data";
          finding.next = "make it by p.detach().clone()";
          return;
        }
        if (is_gradient(shared)) {
          finding.cause = "a state that is made of a gradient without a copy: p.grad, p.grad.data";
          finding.next = "make it by p.grad.clone()";
          return;
        }
        finding.cause = shared.whole
                            ? "states that were loaded or made for one parameter and kept for "
                              "another, or found by shape or name"
                            : "wrong offsets in a flat buffer of states";
        finding.next =
            "look at where the state is made; a copy of a state_dict needs copy.deepcopy";
    }
  }

  std::map<std::pair<uint64_t, uint64_t>, Updated> updated_;  ///< by storage and offset
  double factor_ = 1;  ///< of the last step in which the program wrote weights
  unsigned averaged_ = 0;
  uint32_t last_update_ = 0;
  bool average_told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_shared_memory() { return std::make_unique<SharedMemory>(); }

}  // namespace convtrace::check
