#include "tools/check/values/parameter_ledger.h"

#include <algorithm>
#include <cctype>
#include <unordered_set>

#include "tools/check/model/second_moment.h"

namespace convtrace::check {

using format::Phase;

bool is_foreign(std::string_view name) {
  return name.starts_with("group") && name.size() > 5 &&
         std::isdigit(static_cast<unsigned char>(name[5])) != 0 &&
         name.find('.') != std::string_view::npos;
}

namespace {

bool is_empty(const std::vector<const Value*>& values) {
  return std::ranges::all_of(values, [](const Value* value) { return value->stats.count == 0; });
}

}  // namespace

void ParameterLedger::see(const StepValues& step, const Surroundings& around) {
  for (const Value* input : step.data) roots_.insert(input->place.scope);
  note_parameters(step, around);
  if (!step.trains) return;
  ++steps;
  if (first_step == format::kNoStep) first_step = step.number;
  std::set<format::StringId> called;
  std::unordered_set<uint64_t> passed;  // inputs of modules that a gradient passes
  for (const auto& [key, call] : step.calls) {
    if (key.phase != Phase::kForward && key.phase != Phase::kRecompute) continue;
    if (is_empty(call.inputs) && is_empty(call.outputs)) continue;  // an expert without tokens
    called.insert(key.scope);
    if (!step.grad_outputs.contains(key.scope)) continue;
    for (const Value* input : call.inputs) passed.insert(input->stats.hash);
  }
  // Outputs computed up to here may lead to one that a later call takes and returns no gradient
  // for.
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
  for (const format::StringId scope : called)
    each_of(scope, [](Known& known) { ++known.steps_called; });
  for (const auto& [scope, outputs] : step.grad_outputs) {
    const bool of_loss = std::ranges::any_of(
        outputs, [&step](const Value* gradient) { return is_of_loss(step, *gradient); });
    each_of(scope, [of_loss](Known& known) {
      ++known.steps_passed;
      known.steps_of_loss += of_loss ? 1 : 0;
    });
  }
  for (const auto& [scope, output] : first_output)
    if (output <= cut_at) each_of(scope, [](Known& known) { known.consumed = true; });
  for (const auto& [parameter, now] : step.parameters)
    follow(parameters[parameter], now, step.number, rate, around.facts);
  note_shares(step);
  note_writes(step);
}

/// @return false for the gradient of an output that the program asked for (torch.autograd.grad) between
/// that output and the first loss behind it. The loss may be made of that gradient alone.
bool ParameterLedger::is_of_loss(const StepValues& step, const Value& gradient) {
  const auto call =
      step.calls.find({gradient.place.scope, {}, Phase::kForward, gradient.place.call});
  if (call == step.calls.end() || call->second.outputs.empty()) return true;
  const uint64_t made = call->second.outputs.front()->seq;
  const auto loss =
      std::ranges::find_if(step.losses, [made](const Value* one) { return one->seq > made; });
  return loss == step.losses.end() || gradient.seq > (*loss)->seq;
}

/// Notes the ratio of each gradient to the largest one of its step. The maximum over all steps is
/// kept, so that one exploding gradient does not make the others small.
void ParameterLedger::note_shares(const StepValues& step) {
  const auto size = [](const ParameterStep& now) {
    const Value* const gradient = now.of_backward();
    return gradient != nullptr && gradient->finite() ? gradient->stats.amax.as_f64() : 0;
  };
  double largest = 0;
  for (const auto& [parameter, now] : step.parameters) largest = std::max(largest, size(now));
  if (!(largest > 0)) return;
  for (const auto& [parameter, now] : step.parameters) {
    double& share = parameters[parameter].share;
    share = std::max(share, size(now) / largest);
  }
}

/// Updates by hand, and those that another process makes and sends.
void ParameterLedger::note_writes(const StepValues& step) {
  for (const Value& value : step.values) {
    if (value.role != Role::kWritten) continue;
    const auto found = parameters.find({value.place.scope, value.name});
    if (found == parameters.end()) continue;
    Known& known = found->second;
    if (value.stats.hash == known.last.stats.hash || value.stats.hash == known.written) continue;
    ++known.writes;
    known.written = value.stats.hash;
  }
}

/// Calls `act` for the parameters of a module.
void ParameterLedger::each_of(format::StringId scope, const std::function<void(Known&)>& act) {
  for (auto entry = parameters.lower_bound({scope, {}});
       entry != parameters.end() && entry->first.scope == scope; ++entry)
    act(entry->second);
}

/// A name may go to another module: one that was called alone while the model was made.
void ParameterLedger::forget_replaced(const StepValues& step, const Surroundings& around) {
  for (const FactSeen& fact : step.facts) {
    if (!fact.scope || around.names.text(fact.name) != "class") continue;
    std::string& known = classes_[fact.scope];
    if (!known.empty() && known != fact.value) forget_unused(fact.scope);
    known = fact.value;
  }
}

void ParameterLedger::forget_unused(format::StringId scope) {
  auto entry = parameters.lower_bound({scope, {}});
  while (entry != parameters.end() && entry->first.scope == scope)
    entry = entry->second.updates == 0 ? parameters.erase(entry) : std::next(entry);
}

void ParameterLedger::note_parameters(const StepValues& step, const Surroundings& around) {
  forget_replaced(step, around);
  for (const auto& [parameter, seen] : step.parameters) {
    Known& known = parameters[parameter];
    if (seen.initial != nullptr) {
      known.initial = any_initial = true;
      known.frozen = around.facts.frozen(parameter);
      if (!known.seen) known.last = *seen.initial;
      known.seen = true;
    }
  }
}

void ParameterLedger::follow(Known& known, const ParameterStep& now, uint32_t step, double rate,
                             const Facts& facts) {
  const Value* const gradient = now.of_backward();
  if (now.gradient != nullptr && squared_overflow(*now.gradient, facts) != Overflow::kNone)
    known.overflowed = true;
  const bool pushed = gradient != nullptr && gradient->finite() && !gradient->zero();
  // A gradient that is known only by its hash counts as nonzero.
  if (gradient != nullptr && !gradient->zero()) {
    ++known.gradients;
    known.gradient = *gradient;
    if (gradient->finite()) known.largest = std::max(known.largest, gradient->stats.amax.as_f64());
    any_gradient = true;
  }
  known.zeros += gradient != nullptr && gradient->zero() ? 1 : 0;
  if (now.updates.empty()) return;
  any_updates = true;
  ++known.updates;
  known.last_update = step;
  const Value& after = *now.updates.back();
  if (known.seen) {
    if (after.stats.hash != known.last.stats.hash) {
      ++known.motions;
    } else if (pushed && rate > 0 && !known.overflowed) {
      ++known.pushes;
      known.rate = rate;
    }
  }
  known.seen = true;
  known.last = after;
}

/// Counts the steps in which an optimizer updates nothing that computed.
void ParameterLedger::note_others(const StepValues& step, const Surroundings& around,
                                  const std::set<format::StringId>& called) {
  bool own = false;
  std::vector<Parameter> updated;
  for (const auto& [parameter, now] : step.parameters) {
    if (now.updates.empty()) continue;
    own |= now.gradient != nullptr ||
           (called.contains(parameter.scope) && !is_foreign(around.names.text(parameter.name)));
    updated.push_back(parameter);
  }
  if (own) others.steps = 0;
  if (own || updated.empty() || step.grad_outputs.empty()) return;
  if (others.steps++ == 0) others.since = step.number;
  others.parameters = std::move(updated);
}

format::StringId ParameterLedger::root_of(const Surroundings& around,
                                          format::StringId scope) const {
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

}  // namespace convtrace::check
