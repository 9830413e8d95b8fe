#include "cupti/gate/cuda_state.h"

#include <algorithm>

#include "cupti/driver/own_calls.h"
#include "cupti/driver/report.h"

namespace convtrace::cupti {

uint32_t most_samples(const InterceptorOptions& options) {
  uint32_t most = options.samples;
  for (const settings::Rule* rule : options.rules->rules())
    most = std::max(most, rule->samples.value_or(0));
  return most;
}

void CudaState::use_context(CUcontext context, uint8_t device, uint64_t id) {
  if (!contexts.add(context, device, id)) return;
  if (!context_met.exchange(true)) {
    if (options.note_context != nullptr) options.note_context();
    if (cupti_trouble) report(*this, cupti_trouble->message, cupti_trouble->text.c_str());
    if (driver.func_get_param_info == nullptr)
      report(*this, messages::kOldDriver,
             "the CUDA driver is older than 12.4 (R550): launches are recorded without operands, "
             "and rules for kernels take no values; update the driver");
  }
  if (options.compute_values && !options.rules->empty()) stats.prepare(context);
}

void CudaState::forget_context(CUcontext context) {
  contexts.remove(context);
  captures.context_ended(context);
  stats.forget(context);
  quarantine.context_ended(context);
  functions.forget_modules();
}

uint64_t CudaState::replace_former(CUcontext current) {
  if (ends_are_told.load(std::memory_order_relaxed) || driver.ctx_get_id == nullptr) return 0;
  unsigned long long id = 0;
  if (driver.ctx_get_id(current, &id) != CUDA_SUCCESS || !contexts.is_another(current, id))
    return id;
  // A second thread that finds the same waits here, so that it launches nothing with handles of the
  // former context.
  const Lock lock(replacing);
  if (!contexts.is_another(current, id)) return id;
  forget_context(current);
  stats.forgotten_ended();
  return id;
}

CurrentContext CudaState::current_context() {
  const OwnCalls own;
  CurrentContext current;
  if (driver.ctx_get_current(&current.context) != CUDA_SUCCESS || current.context == nullptr)
    return {};
  const uint64_t id = replace_former(current.context);
  if (const auto known = contexts.device_of(current.context)) {
    current.device = *known;
    return current;
  }
  CUdevice ordinal = 0;
  if (driver.ctx_get_device(&ordinal) != CUDA_SUCCESS) return current;
  current.device = static_cast<uint8_t>(ordinal);
  use_context(current.context, current.device, id);
  return current;
}

CurrentContext CudaState::context_of(CUstream stream) {
  const OwnCalls own;
  CUcontext context = nullptr;
  if (driver.stream_get_ctx(stream, &context) != CUDA_SUCCESS) return {};
  const ContextScope scope(driver, context);
  return scope.result() == CUDA_SUCCESS ? current_context() : CurrentContext{};
}

bool CudaState::is_capturing(CUstream stream) const noexcept {
  const OwnCalls own;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.stream_is_capturing(stream, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void report(const CudaState& state, const Message& message, const char* what) noexcept {
  report(*state.options.sink, state.position().step, message, what);
}

}  // namespace convtrace::cupti
