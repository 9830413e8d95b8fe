#include "cupti/memory_gate.h"

#include "cupti/driver/own_calls.h"
#include "cupti/driver/report.h"
#include "cupti/gate/sampler.h"

namespace convtrace::cupti {
namespace {

/// Whether work of ours may be put into a stream of the current context.
bool may_fill(CudaState& state, CUstream stream) {
  return can_launch(state, state.current_context().context, effective_stream(stream, false)) ==
         format::NotSampled::kSampled;
}

}  // namespace

int keep(CudaState& state, convtrace_memory_call call, uint64_t address, uint64_t bytes,
         CUstream stream) {
  if (OwnCalls::active()) return 0;
  KeptMemory& kept = state.kept;
  switch (call) {
    case CONVTRACE_MEMORY_GIVEN:
      kept.given(address, bytes, !state.captures.any_active() && state.gpu_work.load());
      kept.grew();
      break;
    case CONVTRACE_MEMORY_GIVEN_IN_ORDER:
      kept.given_in_order(address, bytes, stream, kept.poisons() && may_fill(state, stream));
      kept.grew();
      break;
    case CONVTRACE_MEMORY_TAKEN_IN_ORDER:
      kept.taken_in_order(address, stream, kept.poisons() && may_fill(state, stream));
      break;
    case CONVTRACE_MEMORY_GREW:
      kept.grew();
      break;
    case CONVTRACE_MEMORY_SHARED:
      kept.shared(address);
      break;
    case CONVTRACE_MEMORY_SHORT:
      return kept.give_back() ? 1 : 0;
    case CONVTRACE_MEMORY_WANTED:
      (void)kept.give_back();
      break;
    case CONVTRACE_MEMORY_CAPTURE:
      if (!kept.end()) break;
      report(state, format::Level::kWarning, "memory",
             "CONVTRACE_QUARANTINE ends here: the program captures a graph, and to wait for the "
             "device, as a free does, could break a capture");
      break;
  }
  return 0;
}

int free_or_keep(CudaState& state, CallbackObserver& observer, convtrace_cuMemFree_fn real,
                 uint64_t address) noexcept {
  if (!state.active.load(std::memory_order_acquire) || !state.gpu_work.load()) {
    (void)state.kept.give_back();
    return real(address);
  }
  try {
    const auto freed = [&] { observer.freed(address, state.current_context()); };
    switch (state.kept.free(address, freed)) {
      case KeptMemory::Free::kHeld:
        return CUDA_SUCCESS;
      case KeptMemory::Free::kTwice:
        return CUDA_ERROR_INVALID_VALUE;
      case KeptMemory::Free::kCall:
        break;
    }
  } catch (...) {  // no memory to hold it by
  }
  return real(address);
}

}  // namespace convtrace::cupti
