#include "cupti/cuda_state.h"

#include "cupti/own_calls.h"
#include "format/base/log.h"

namespace convtrace::cupti {

void CudaState::use_context(CUcontext context, uint8_t device) {
  if (contexts.add(context, device) && options.compute_values) stats.prepare(context);
}

CurrentContext CudaState::current_context() {
  const OwnCalls own;
  CurrentContext current;
  if (driver.ctx_get_current(&current.context) != CUDA_SUCCESS || current.context == nullptr)
    return {};
  if (const auto known = contexts.device_of(current.context)) {
    current.device = *known;
    return current;
  }
  CUdevice ordinal = 0;
  if (driver.ctx_get_device(&ordinal) != CUDA_SUCCESS) return current;
  current.device = static_cast<uint8_t>(ordinal);
  use_context(current.context, current.device);
  return current;
}

void report(const CudaState& state, format::Level level, const char* site,
            const char* message) noexcept {
  log_line(level, site, "%s", message);
  format::Diagnostic diagnostic;
  diagnostic.header.step = state.position().step;
  diagnostic.level = level;
  diagnostic.site = site;
  diagnostic.message = message;
  state.options.sink->emit(diagnostic);
}

}  // namespace convtrace::cupti
