#include "tools/trace/flow/passed.h"

namespace convtrace::diff {

Passed passed_of(const format::TensorStats& event, const format::Definitions& names) {
  return {.kind = role_of(names.text(event.slot)),
          .place = event.place,
          .slot = event.slot,
          .op = event.op,
          .of_kernel = static_cast<bool>(event.kernel),
          .measured = event.capture != format::Capture::kHash,
          .stats = event.stats,
          .value = event.value,
          .bytes = event.bytes,
          .dtype = event.dtype};
}

Passed passed_of(const ValueRecord& record) {
  return {.kind = record.kind,
          .place = {.scope = record.key.scope, .call = record.key.call, .phase = record.key.phase},
          .slot = record.key.slot,
          .op = record.key.op,
          .of_kernel = static_cast<bool>(record.key.family),
          .measured = record.capture != format::Capture::kHash,
          .stats = record.stats,
          .value = record.value,
          .bytes = record.bytes,
          .dtype = record.dtype};
}

format::Phase call_phase(const Passed& value) {
  return value.place.phase == format::Phase::kData ? format::Phase::kForward : value.place.phase;
}

}  // namespace convtrace::diff
