#include "tools/diff/verdict/describe.h"

#include "tools/common/element.h"

namespace convtrace::diff {

SideReport describe_side(const StepRecords& step, const ValueRecord& record) {
  const auto shape = step.shape_of(record);
  return {.stats = record.stats,
          .dtype = record.dtype,
          .capture = record.capture,
          .extent = record.extent,
          .device = record.device,
          .has_shape = record.has_shape,
          .shape = {shape.begin(), shape.end()},
          .samples = tools::decode_elements(record.dtype, step.samples_of(record)),
          .value = record.value,
          .address = record.address,
          .bytes = record.bytes,
          .t_ns = record.t_ns};
}

RecordReport describe_key(const format::Definitions& names, uint32_t rank, uint32_t step,
                          const ValueRecord& record) {
  RecordReport report;
  report.rank = rank;
  report.step = step;
  report.phase = record.key.phase;
  report.scope = names.text(record.key.scope);
  report.slot = names.text(record.key.slot);
  report.op = names.text(record.key.op);
  report.kernel = names.text(record.kernel);
  report.call = record.key.call;
  return report;
}

}  // namespace convtrace::diff
