#include "tools/diff/flow/known_as.h"

#include <algorithm>
#include <tuple>

namespace convtrace::diff {

const ValueRecord* known_as(const StepRecords& step, uint32_t index) {
  const ValueRecord& record = step.values[index];
  const auto memory = [](const ValueRecord& one) {
    return std::tie(one.value.generation, one.value.offset, one.address, one.bytes);
  };
  if (!record.key.op && !record.key.family) return nullptr;
  if (record.value.generation == 0) return nullptr;
  const auto named = std::ranges::find_if(step.values, [&](const ValueRecord& one) {
    const bool has_name = one.kind == SlotKind::kGrad || one.kind == SlotKind::kParam ||
                          one.kind == SlotKind::kBuffer;
    return has_name && !one.key.op && memory(one) == memory(record);
  });
  return named == step.values.end() ? nullptr : &*named;
}

}  // namespace convtrace::diff
