#include "cupti/gate.h"

#include <algorithm>
#include <bit>

#include "cupti/cuda_error.h"

namespace convtrace::cupti {
void Gate::before(const LaunchInfo& launch, bool per_thread, Pass& pass) noexcept {
  try {
    describe(launch, per_thread, pass);
    pass.launch = &launch;
  } catch (...) {  // no memory: this launch goes unrecorded
    pass.launch = nullptr;
  }
}

void Gate::describe(const LaunchInfo& launch, bool per_thread, Pass& pass) {
  format::Launch& event = pass.event;
  const Position position = state_.position();
  event.header.step = position.step;
  event.place = position.place;
  std::copy_n(launch.grid, 3, event.grid);
  std::copy_n(launch.block, 3, event.block);
  event.shared_bytes = launch.shared_bytes;
  event.stream = std::bit_cast<uint64_t>(effective_stream(launch.stream, per_thread));
  const CurrentContext current = state_.current_context();
  pass.context = current.context;
  event.device = current.device;
  if (launch.function == nullptr) {
    event.kernel = state_.functions.define("cuGraphLaunch");
    return;
  }
  const FunctionInfo& function = state_.functions.resolve(launch.function);
  event.kernel = function.kernel;
  const std::span<format::Operand> operands = pass.operands();
  const size_t count = scan_operands(launch, function.params, *state_.options.addresses, operands);
  event.operands = operands.first(count);
  if (!function.rules.empty())
    pass.sampler.emplace(state_, launch, function, position, event.device);
}

void Gate::after(int result, Pass& pass) noexcept {
  if (result != CUDA_SUCCESS) note_failure(result);
  if (pass.launch == nullptr) return;
  if (expect_callbacks_.load(std::memory_order_relaxed) && !pass.confirmed)
    disagreements_.fetch_add(1, std::memory_order_relaxed);
  if (result != CUDA_SUCCESS) {
    pass.event.sampled = format::NotSampled::kLaunchFailed;
  } else if (pass.sampler) {
    pass.event.sampled =
        pass.sampler->submit(pass.context, std::bit_cast<CUstream>(pass.event.stream));
  }
  if (state_.options.record_launches) state_.options.sink->emit(pass.event);
}

void Gate::cross_check(const LaunchInfo& seen) noexcept {
  const LaunchInfo* launch = pass_ == nullptr ? nullptr : pass_->launch;
  if (launch == nullptr) return;
  pass_->confirmed = seen.function == launch->function &&
                     std::equal(seen.grid, seen.grid + 3, launch->grid) &&
                     std::equal(seen.block, seen.block + 3, launch->block);
}

void Gate::note_failure(int result) noexcept {
  if (!is_sticky(result) || !state_.gpu_work.exchange(false)) return;
  const OwnCalls own;
  char message[192];
  snprintf(message, sizeof message,
           "a launch returned %s: the program's CUDA context is lost; launches are still recorded, "
           "values on the GPU are not",
           name_of(state_.driver, static_cast<CUresult>(result)));
  report(state_, format::Level::kWarning, "gate", message);
}

}  // namespace convtrace::cupti
