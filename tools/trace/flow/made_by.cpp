#include "tools/trace/flow/made_by.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "format/model/op_names.h"
#include "tools/trace/flow/relations.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {
namespace {

using format::Definitions;
using format::Phase;
using format::StringId;

/// A trace is not trusted: one value may be given and taken any number of times.
constexpr size_t kMostOutputs = 16, kMostTakers = 256;

class Search {
 public:
  Search(std::span<const Passed> step, size_t gradient, const Definitions& names,
         const HealthOf& health)
      : step_(step), gradient_(gradient), names_(names), health_(health) {
    for (size_t i = 0; i < step.size(); ++i) {
      const Passed& one = step[i];
      const bool flows = one.kind == Role::kGradOutput || one.kind == Role::kGradInput;
      if (flows && one.place.phase == Phase::kBackward)
        gradients_[one.place.scope.value].push_back(i);
      if (one.kind != Role::kInput && one.kind != Role::kOutput) continue;
      if (one.of_module()) called_.insert(names.text(one.place.scope));
      for (const uint64_t key : {memory_key(one), bytes_key(one)})
        if (key != 0) first_.emplace(key, i);
    }
  }

  MadeBy find() {
    if (const auto returned = returned_by_op()) return *returned;
    find_outputs();
    std::vector<size_t> takers = takers_by(is_same_memory);
    if (takers.empty()) takers = takers_by(has_same_bytes);
    keep_guilty(takers);
    if (const auto written = written_by_op(takers)) return *written;
    if (!takers.empty()) return taken_by(takers);
    return by_order();
  }

 private:
  [[nodiscard]] const Passed& at(size_t i) const { return step_[i]; }
  [[nodiscard]] std::string_view path(const Passed& one) const {
    return names_.text(one.place.scope);
  }
  [[nodiscard]] bool lies_in(const Passed& one, const Passed& module) const {
    if (!one.place.scope || !module.place.scope) return false;
    return is_inside(path(one), path(module)) || (one.op && path(one) == path(module));
  }

  /// The backward of an op may be recorded in one run alone, and its result is then no root.
  [[nodiscard]] std::optional<MadeBy> returned_by_op() const {
    for (size_t i = gradient_; i-- > 0;) {
      const Passed& one = at(i);
      if (one.kind != Role::kGradInput || !one.op || !is_same_memory(one, at(gradient_))) continue;
      return MadeBy{.how = HowKnown::kReturned,
                    .makers = {maker_of(one, names_, std::string(names_.text(one.slot)))}};
    }
    return std::nullopt;
  }

  /// Finds an op whose backward writes to its given gradient, while a module around it has its
  /// gradient in the same memory: the gradient that bypasses the op (a residual) is changed, too.
  [[nodiscard]] std::optional<MadeBy> written_by_op(const std::vector<size_t>& takers) const {
    std::vector<const Passed*> modules;
    for (const size_t i : takers)
      if (at(i).of_module()) modules.push_back(&at(i));
    if (const Passed* outer = module_around()) modules.push_back(outer);
    for (size_t after = gradient_; after-- > 0;) {
      const Passed& one = at(after);
      // `grad_output_after:0`, or `grad_output_shared:0` where others hold it
      const std::string_view text = names_.text(one.slot);
      if (!one.op || !is_other(one.kind) || !text.starts_with("grad_output_")) continue;
      const std::string slot = "grad_output:" + std::to_string(number_of(text));
      const Passed* given = given_before(after, slot);
      if (given == nullptr || given->stats.hash == one.stats.hash) continue;
      const bool passes_on = std::ranges::any_of(modules, [&](const Passed* module) {
        return lies_in(one, *module) && has_gradient(*module, *given);
      });
      if (passes_on)
        return MadeBy{.how = HowKnown::kWrote, .makers = {maker_of(one, names_, slot)}};
    }
    return std::nullopt;
  }
  [[nodiscard]] const Passed* given_before(size_t after, std::string_view slot) const {
    const auto gradients = gradients_.find(at(after).place.scope.value);
    if (gradients == gradients_.end()) return nullptr;
    const Passed* found = nullptr;
    for (const size_t i : gradients->second) {
      if (i >= after) break;
      if (is_one_call(at(i), at(after)) && names_.text(at(i).slot) == slot) found = &at(i);
    }
    return found;
  }
  [[nodiscard]] bool has_gradient(const Passed& module, const Passed& value) const {
    const auto gradients = gradients_.find(module.place.scope.value);
    if (gradients == gradients_.end()) return false;
    return std::ranges::any_of(gradients->second, [&](size_t i) {
      return at(i).of_module() && is_one_call(at(i), module) && is_same_memory(at(i), value);
    });
  }

  /// The value that the receiver returned in the forward pass, by which the gradient came to it.
  void find_outputs() {
    const Passed& receiver = at(gradient_);
    const uint32_t number = number_of(names_.text(receiver.slot));
    const std::string_view op = format::forward_name(names_.text(receiver.op));
    if (receiver.op && op.empty()) return;
    for (size_t i = 0; i < gradient_; ++i) {
      const Passed& one = at(i);
      if (outputs_.size() < kMostOutputs && one.kind == Role::kOutput &&
          is_forward(one.place.phase) && !one.of_kernel &&
          one.place.scope == receiver.place.scope && one.place.call == receiver.place.call &&
          names_.text(one.op) == op && number_of(names_.text(one.slot)) == number)
        outputs_.push_back(i);
    }
    // Nothing says which of several calls of an op in one call of a module it is.
    if (receiver.op && outputs_.size() > 1) outputs_.clear();
  }

  [[nodiscard]] std::vector<size_t> takers_by(bool (*is_same)(const Passed&, const Passed&)) const {
    std::vector<size_t> takers;
    for (const size_t output : outputs_) {
      for (size_t i = output + 1; i < gradient_; ++i) {
        const Passed& one = at(i);
        if (takers.size() < kMostTakers && one.kind == Role::kInput &&
            is_forward(one.place.phase) && !one.of_kernel && is_same(at(output), one) &&
            !holds(takers, one))
          takers.push_back(i);
      }
    }
    return takers;
  }
  [[nodiscard]] bool holds(const std::vector<size_t>& calls, const Passed& one) const {
    return std::ranges::any_of(calls, [&](size_t i) {
      return is_one_call(at(i), one) && names_.text(at(i).slot) == names_.text(one.slot);
    });
  }

  /// @return the health of the gradients given to a call's backward. kBad for an op that returned a
  /// good gradient of its `input`, since its part is not wrong in the sum.
  [[nodiscard]] Health health_of(const Passed& input) const {
    Health found = Health::kNotKnown;
    const uint32_t number = number_of(names_.text(input.slot));
    const auto gradients = gradients_.find(input.place.scope.value);
    if (gradients == gradients_.end()) return found;
    for (const size_t i : gradients->second) {
      const Passed& one = at(i);
      if (one.place.call != input.place.call) continue;
      const bool own = input.op ? format::forward_name(names_.text(one.op)) == names_.text(input.op)
                                : one.of_module();
      if (!own) continue;
      if (one.kind == Role::kGradInput && number_of(names_.text(one.slot)) == number &&
          health_(i) == Health::kGood)
        return Health::kBad;
      if (one.kind != Role::kGradOutput) continue;
      if (i > gradient_ || health_(i) == Health::kBad) return Health::kBad;
      if (health_(i) == Health::kGood) found = Health::kGood;
    }
    return found;
  }

  /// Removes calls that were given a wrong gradient or ran later, and modules without a gradient if
  /// others have one.
  void keep_guilty(std::vector<size_t>& takers) const {
    const auto drop = [&](auto is_innocent) {
      if (!std::ranges::all_of(takers, is_innocent)) std::erase_if(takers, is_innocent);
    };
    drop([&](size_t i) { return health_of(at(i)) == Health::kBad; });
    const bool any_good =
        std::ranges::any_of(takers, [&](size_t i) { return health_of(at(i)) == Health::kGood; });
    if (any_good)
      drop([&](size_t i) { return !at(i).op && health_of(at(i)) == Health::kNotKnown; });
  }

  /// @return whether a module's own code, outside of recorded modules and ops, computes a value: an
  /// input inside it, or its output, has no earlier record.
  [[nodiscard]] bool computes(const Passed& module) const {
    for (size_t i = 0; i < gradient_; ++i) {
      const Passed& one = at(i);
      if (!is_forward(one.place.phase)) continue;
      const bool inside = one.kind == Role::kInput && is_called_by(one, module);
      const bool result = one.kind == Role::kOutput && one.of_module() && is_one_call(one, module);
      if ((inside || result) && is_new(i)) return true;
    }
    return false;
  }
  /// @return whether a module or an op is called by the code of a module, and not by one inside it.
  [[nodiscard]] bool is_called_by(const Passed& one, const Passed& module) const {
    if (!lies_in(one, module)) return false;
    if (one.op) return one.place.scope == module.place.scope;
    for (std::string_view outer = path(one); !outer.empty();) {
      const size_t dot = outer.rfind('.');
      outer = outer.substr(0, dot == std::string_view::npos ? 0 : dot);
      if (called_.contains(outer)) return outer == path(module);
    }
    return false;
  }
  /// @return whether no call took or gave the value before, whole or in part.
  [[nodiscard]] bool is_new(size_t i) const {
    return std::ranges::all_of(std::array{memory_key(at(i)), bytes_key(at(i))}, [&](uint64_t key) {
      const auto first = first_.find(key);
      return first == first_.end() || first->second == i;
    });
  }
  /// Keys of 0: not known.
  static uint64_t memory_key(const Passed& one) {
    const auto& [storage, offset, generation, version] = one.value;
    return storage == 0 ? 0 : mix_all({storage, generation, version, 1});
  }
  static uint64_t bytes_key(const Passed& one) {
    return one.stats.count < 2 ? 0 : mix_all({one.stats.hash, one.stats.count, 2});
  }

  /// The innermost calls are named; a module around one of them may have used the value itself.
  [[nodiscard]] MadeBy taken_by(const std::vector<size_t>& takers) const {
    MadeBy made{.how = HowKnown::kTaken};
    for (const size_t taker : takers) {
      const bool is_outer = std::ranges::any_of(takers, [&](size_t other) {
        return at(taker).of_module() && lies_in(at(other), at(taker));
      });
      if (is_outer) {
        add_around(made, at(taker));
      } else {
        const std::string slot(names_.text(at(taker).slot));
        made.makers.push_back(maker_of(at(taker), names_, "grad_" + slot));
      }
    }
    if (const Passed* outer = module_around()) add_around(made, *outer);
    return made;
  }
  void add_around(MadeBy& made, const Passed& module) const {
    std::string scope(path(module));
    if (computes(module) && std::ranges::find(made.around, scope) == made.around.end())
      made.around.push_back(std::move(scope));
  }

  /// @return an output of the innermost module whose call contains that of the receiver.
  [[nodiscard]] const Passed* module_around() const {
    const Passed* found = nullptr;
    if (outputs_.empty()) return found;
    for (size_t i = outputs_.front() + 1; i < gradient_; ++i) {
      const Passed& one = at(i);
      if (one.kind == Role::kOutput && one.of_module() && is_forward(one.place.phase) &&
          lies_in(at(gradient_), one) && !is_one_call(one, at(gradient_)) &&
          (found == nullptr || lies_in(one, *found)))
        found = &one;
    }
    return found;
  }

  /// Used if no recorded call took the value: the next call that takes a new value, or the
  /// enclosing module, has the result that was made of it.
  [[nodiscard]] MadeBy by_order() const {
    const size_t from = outputs_.empty() ? 0 : outputs_.front() + 1;
    const Passed* last_op = nullptr;
    for (size_t i = from; i < gradient_ && !outputs_.empty(); ++i) {
      const Passed& one = at(i);
      if (!is_forward(one.place.phase) || one.of_kernel) continue;
      const bool is_result = one.kind == Role::kOutput && one.of_module() &&
                             lies_in(at(gradient_), one) && !is_one_call(one, at(gradient_));
      if (is_result) {
        MadeBy made{.how = HowKnown::kOrder, .makers = {maker_of(one, names_, "")}};
        made.makers.front().own_code = true;
        return made;
      }
      if (one.kind != Role::kInput || lies_in(at(gradient_), one)) continue;
      if (one.op) last_op = &one;
      if (is_new(i) && health_of(one) != Health::kBad)
        return {.how = HowKnown::kOrder,
                .makers = {code_between(),
                           maker_of(one, names_, "grad_" + std::string(names_.text(one.slot)))}};
    }
    MadeBy made{.how = outputs_.empty() ? HowKnown::kOrder : HowKnown::kBegin};
    if (outputs_.empty()) {
      const auto before = ran_before();
      if (!before) return {.how = HowKnown::kBegin};
      made.makers = {maker_of(at(*before), names_, "")};
    } else if (last_op != nullptr) {
      made.makers = {maker_of(*last_op, names_, "")};
    }
    return made;
  }
  [[nodiscard]] Maker code_between() const {
    const Passed* outer = module_around();
    Maker code = maker_of(outer == nullptr ? Passed() : *outer, names_, "");
    code.own_code = true;
    return code;
  }

  /// Without records of the forward pass: the gradient before it, of another call.
  [[nodiscard]] std::optional<size_t> ran_before() const {
    for (size_t i = gradient_; i-- > 0;) {
      const Passed& one = at(i);
      const bool flows = one.kind == Role::kGradOutput || one.kind == Role::kGradInput;
      if (flows && !is_one_call(one, at(gradient_)) && !is_same_memory(one, at(gradient_)) &&
          health_(i) != Health::kBad)
        return i;
    }
    return std::nullopt;
  }

  const std::span<const Passed> step_;
  const size_t gradient_;
  const Definitions& names_;
  const HealthOf& health_;
  std::vector<size_t> outputs_;
  std::unordered_map<uint32_t, std::vector<size_t>> gradients_;  ///< the step's gradients, by scope
  std::unordered_set<std::string_view> called_;                  ///< modules
  std::unordered_map<uint64_t, size_t> first_;  ///< inputs and outputs, by memory and by bytes
};

/// @return the gradient that an op's backward was given, if it is bad: then its maker is searched.
std::optional<size_t> given_to(std::span<const Passed> step, size_t result,
                               const HealthOf& health) {
  for (size_t i = result; i-- > 0;) {
    const Passed& one = step[i];
    if (one.kind != Role::kGradOutput || !is_one_call(one, step[result])) continue;
    return health(i) == Health::kBad ? std::optional(i) : std::nullopt;
  }
  return std::nullopt;
}

/// @return whether calls of a compiled region's backward are recorded. The ops that it fused are
/// not, so the order of the others shows nothing.
bool has_compiled_backward(std::span<const Passed> step) {
  return std::ranges::any_of(step, [](const Passed& one) {
    return one.op && one.kind == Role::kOutput && one.place.phase == Phase::kBackward;
  });
}

}  // namespace

std::optional<MadeBy> made_by(std::span<const Passed> step, size_t gradient,
                              const format::Definitions& names, const HealthOf& health) {
  if (step[gradient].kind == Role::kGradInput && step[gradient].op) {
    if (auto made = overwritten_by(step, gradient, names)) {
      made->receiver =
          maker_of(step[gradient], names, std::string(names.text(step[gradient].slot)));
      return made;
    }
    const auto given = given_to(step, gradient, health);
    if (!given) return std::nullopt;
    gradient = *given;
  }
  const Passed& one = step[gradient];
  if (one.kind != Role::kGradOutput || one.of_kernel) return std::nullopt;
  MadeBy made = Search(step, gradient, names, health).find();
  if (made.is_likely() && has_compiled_backward(step.first(gradient))) return std::nullopt;
  made.receiver = maker_of(one, names, std::string(names.text(one.slot)));
  return made;
}

}  // namespace convtrace::diff
