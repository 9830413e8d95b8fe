#include "cupti/memory_gate.h"

#include "cupti/driver/own_calls.h"
#include "cupti/driver/report.h"
#include "cupti/gate/launch_capture.h"

namespace convtrace::cupti {
namespace {

/// @return whether convtrace may launch on a stream of the current context.
bool may_fill(CudaState& state, CUstream stream) {
  return can_launch(state, state.current_context().context, effective_stream(stream, false)) ==
         format::SampleOutcome::kSampled;
}

}  // namespace

int keep(CudaState& state, convtrace_memory_call call, uint64_t address, uint64_t bytes,
         CUstream stream) {
  if (OwnCalls::active()) return 0;
  Quarantine& quarantine = state.quarantine;
  switch (call) {
    case CONVTRACE_MEMORY_GIVEN:
      quarantine.given(address, bytes, !state.captures.any_active() && state.gpu_work.load());
      quarantine.grew();
      break;
    case CONVTRACE_MEMORY_GIVEN_IN_ORDER:
      quarantine.given_in_order(address, bytes, stream,
                                quarantine.poisons() && may_fill(state, stream));
      quarantine.grew();
      break;
    case CONVTRACE_MEMORY_TAKEN_IN_ORDER:
      quarantine.taken_in_order(address, stream, quarantine.poisons() && may_fill(state, stream));
      break;
    case CONVTRACE_MEMORY_GREW: quarantine.grew(); break;
    case CONVTRACE_MEMORY_SHARED: quarantine.shared(address); break;
    case CONVTRACE_MEMORY_SHORT: return quarantine.give_back() ? 1 : 0;
    case CONVTRACE_MEMORY_WANTED: (void)quarantine.give_back(); break;
    case CONVTRACE_MEMORY_CAPTURE:
      if (!quarantine.end()) break;
      report(state, messages::kQuarantineEnds,
             "CONVTRACE_QUARANTINE ends here: the program captures a graph, and to wait for the "
             "device, as a free does, could break a capture");
      break;
  }
  return 0;
}

int free_or_keep(CudaState& state, CallbackObserver& observer, convtrace_cuMemFree_fn real,
                 uint64_t address) noexcept {
  if (!state.active.load(std::memory_order_acquire) || !state.gpu_work.load()) {
    (void)state.quarantine.give_back();
    return real(address);
  }
  try {
    const auto freed = [&] { observer.freed(address, state.current_context()); };
    switch (state.quarantine.free(address, freed)) {
      case Quarantine::Free::kHeld: return CUDA_SUCCESS;
      case Quarantine::Free::kTwice: return CUDA_ERROR_INVALID_VALUE;
      case Quarantine::Free::kCall: break;
    }
  } catch (...) {  // no memory to hold it
  }
  return real(address);
}

}  // namespace convtrace::cupti
