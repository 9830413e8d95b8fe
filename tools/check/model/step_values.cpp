#include "tools/check/model/step_values.h"

#include <cmath>

#include "tools/trace/model/hash_mix.h"

namespace convtrace::check {

using format::Phase;

double Value::rms() const {
  return stats.finite == 0 ? 0 : stats.l2 / std::sqrt(static_cast<double>(stats.finite));
}

uint64_t signature(std::span<const Value* const> values) {
  uint64_t sum = values.size();
  for (const Value* value : values) {
    sum += diff::mix_all(
        {value->slot.value, value->place.call, value->stats.hash, value->stats.count});
  }
  return sum;
}

void StepValues::index() {
  parameters.clear();
  calls.clear();
  grad_outputs.clear();
  data.clear();
  losses.clear();
  trains = false;
  for (const Value& value : values) {
    const Parameter parameter{value.place.scope, value.name};
    switch (value.role) {
      case Role::kInput:
      case Role::kOutput: {
        if (value.kernel) break;
        const bool is_data = value.place.phase == Phase::kData;
        if (is_data && value.role == Role::kInput) data.push_back(&value);
        const CallKey key{value.place.scope, value.op,
                          is_data ? Phase::kForward : value.place.phase, value.place.call};
        CallStep& call = calls[key];
        (value.role == Role::kInput ? call.inputs : call.outputs).push_back(&value);
        break;
      }
      case Role::kGradOutput: grad_outputs[value.place.scope].push_back(&value); break;
      case Role::kParameter:
        if (value.place.phase == Phase::kOptimizer) {
          parameters[parameter].updates.push_back(&value);
          trains = true;
        } else {
          parameters[parameter].initial = &value;
        }
        break;
      case Role::kGradient:
        if (const Value*& first = parameters[parameter].gradient; first == nullptr) first = &value;
        trains = true;
        break;
      case Role::kUnclipped:
        if (const Value*& first = parameters[parameter].unclipped; first == nullptr) first = &value;
        break;
      case Role::kLoss: losses.push_back(&value); break;
      default: break;
    }
  }
}

}  // namespace convtrace::check
