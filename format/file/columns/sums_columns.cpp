#include "format/file/columns/sums_columns.h"

#include "format/schema/sums_generated.h"

namespace convtrace::format {

std::unique_ptr<wire::StepSumsT> pack(std::span<const StepSums> sums) {
  if (sums.empty()) return nullptr;
  auto to = std::make_unique<wire::StepSumsT>();
  for (const StepSums& row : sums) {
    to->step.push_back(row.step);
    to->launches.push_back(row.launches);
    to->values.push_back(row.values);
    to->key_sum.push_back(row.key_sum);
    to->value_sum.push_back(row.value_sum);
  }
  return to;
}

}  // namespace convtrace::format
