#include "tools/check/model/batch.h"

#include <unordered_set>
#include <vector>

namespace convtrace::check {
namespace {

/// @return whether a value usually differs between batches. A constant and a range of integers do
/// not.
bool tells(const Value& value) {
  if (value.stats.count <= 1) return false;
  if (!value.measured()) return true;
  if (value.stats.min == value.stats.max) return false;
  const bool whole = format::number_class(value.dtype) != format::NumberClass::kFloat;
  return !whole || value.stats.max.as_u64() - value.stats.min.as_u64() + 1 != value.stats.count;
}

}  // namespace

Batch batch_of(const StepValues& step) {
  std::unordered_set<uint64_t> made;  // hashes of modules' outputs
  for (const auto& [key, call] : step.calls)
    for (const Value* output : call.outputs) made.insert(output->stats.hash);
  std::vector<const Value*> data;
  Batch batch;
  for (const Value* value : step.data) {
    if (made.contains(value->stats.hash)) continue;
    data.push_back(value);
    if (batch.content == nullptr && tells(*value)) batch.content = value;
  }
  batch.signature = signature(data);
  return batch;
}

}  // namespace convtrace::check
