#include "tools/diff/births/last_weights.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

bool is_optimizers_gradient(const ValueRecord& record) { return record.kind == Role::kGradient; }

}  // namespace

ValueRecord& append(StepRecords& step, const ValueView& value) {
  ValueRecord& copy = step.values.emplace_back(value.record);
  copy.dims_at = step.dims.size();
  copy.samples_at = step.samples.size();
  step.dims.insert(step.dims.end(), value.shape.begin(), value.shape.end());
  step.samples.insert(step.samples.end(), value.samples.begin(), value.samples.end());
  return copy;
}

void LastWeights::take(const StepRecords& step, bool in_base) {
  OfRun& run = in_base ? base_ : cand_;
  const auto take_one = [&](const ValueRecord& record) {
    const auto [known, is_new] = run.parameters.try_emplace(parameter_key(record));
    Held& held = known->second;
    // If the program also wrote the parameter in this step, the later of the two records is kept.
    if (!is_new && held.step == step.step && is_before(record, held.record)) return;
    run.moves |=
        !is_new && record.kind == Role::kParameter && held.record.stats.hash != record.stats.hash;
    const ValueView value = view(step, record);
    held.record = record;
    held.step = step.step;
    held.shape.assign(value.shape.begin(), value.shape.end());
    held.samples.assign(value.samples.begin(), value.samples.end());
  };
  for (const ValueRecord& record : step.written) take_one(record);
  for (const ValueRecord& record : step.values) {
    if (record.kind == Role::kParameter) take_one(record);
    run.has_gradients |= is_optimizers_gradient(record);
  }
}

const LastWeights::Held* LastWeights::find(bool in_base, uint64_t parameter) const {
  const auto found = of(in_base).parameters.find(parameter);
  return found == of(in_base).parameters.end() ? nullptr : &found->second;
}

bool LastWeights::moves_unseen(const StepRecords& step, bool in_base) const {
  const OfRun& run = of(in_base);
  if (run.has_gradients || std::ranges::any_of(step.values, is_optimizers_gradient)) return false;
  std::unordered_map<uint64_t, uint64_t> here;  // hashes
  return run.moves || std::ranges::any_of(step.values, [&](const ValueRecord& record) {
           if (record.kind != Role::kParameter) return false;
           const Held* held = find(in_base, parameter_key(record));
           const uint64_t before = held != nullptr ? held->record.stats.hash : record.stats.hash;
           return here.try_emplace(parameter_key(record), before).first->second !=
                  record.stats.hash;
         });
}

}  // namespace convtrace::diff
