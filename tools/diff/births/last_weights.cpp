#include "tools/diff/births/last_weights.h"

namespace convtrace::diff {

ValueRecord& append(StepRecords& step, const ValueView& value) {
  ValueRecord& copy = step.values.emplace_back(value.record);
  copy.dims_at = step.dims.size();
  copy.samples_at = step.samples.size();
  step.dims.insert(step.dims.end(), value.shape.begin(), value.shape.end());
  step.samples.insert(step.samples.end(), value.samples.begin(), value.samples.end());
  return copy;
}

void LastWeights::take(const StepRecords& step, bool in_base) {
  Parameters& known = in_base ? base_ : cand_;
  const auto take_one = [&](const ValueRecord& record) {
    Held& held = known[parameter_key(record)];
    // Of a parameter that was written in the step as well the later record counts.
    if (held.step == step.step && is_before(record, held.record)) return;
    const ValueView value = view(step, record);
    held.record = record;
    held.step = step.step;
    held.shape.assign(value.shape.begin(), value.shape.end());
    held.samples.assign(value.samples.begin(), value.samples.end());
  };
  for (const ValueRecord& record : step.written) take_one(record);
  for (const ValueRecord& record : step.values)
    if (record.kind == SlotKind::kParam) take_one(record);
}

const LastWeights::Held* LastWeights::find(bool in_base, uint64_t parameter) const {
  const Parameters& known = in_base ? base_ : cand_;
  const auto found = known.find(parameter);
  return found == known.end() ? nullptr : &found->second;
}

}  // namespace convtrace::diff
