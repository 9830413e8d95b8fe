#include "cupti/cuda_state.h"

#include "cupti/own_calls.h"
#include "cupti/report.h"

namespace convtrace::cupti {

void CudaState::use_context(CUcontext context, uint8_t device) {
  const bool wanted = options.compute_values && !options.rules->empty();
  if (contexts.add(context, device) && wanted) stats.prepare(context);
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

bool CudaState::is_capturing(CUstream stream) const noexcept {
  const OwnCalls own;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.stream_is_capturing(stream, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void report(const CudaState& state, format::Level level, const char* site,
            const char* message) noexcept {
  report(*state.options.sink, state.position().step, level, site, message);
}

}  // namespace convtrace::cupti
