// The functions that the preload library's wrappers call. A launch makes the real call exactly
// once, in every state of tracing.

#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>

#include "cupti/abi/hooks_v1.h"
#include "format/settings/run_mark.h"
#include "format/settings/settings.h"
#include "interposer/core/engine.h"
#include "interposer/core/lifecycle.h"
#include "interposer/core/runtime/guarded.h"

namespace convtrace::engine {
namespace {

void on_memory_report(void* pointer, int64_t bytes, uint64_t device) {
  guarded("memory report", false, [=] {
    if (Engine* engine = running_engine()) engine->report_memory(pointer, bytes, device);
    return true;
  });
}

/// @return the handler of launches; null: the caller only makes the real call.
cupti::Interceptor* launch_handler() noexcept {
  if (!process_state().active()) return nullptr;
  Engine* const engine = running_engine();
  return engine != nullptr ? engine->interceptor() : nullptr;
}

int on_launch(int call, int per_thread, const void* params, convtrace_launch_fn real) {
  cupti::Interceptor* const cuda = launch_handler();
  if (cuda == nullptr) return real(params);
  return cuda->launch(static_cast<convtrace_launch_call>(call), per_thread != 0, params, real);
}

void on_graph_call(int call, void* exec, void* object, const void* params) {
  if (cupti::Interceptor* cuda = launch_handler())
    cuda->graph_call(static_cast<convtrace_graph_call>(call), exec, object, params);
}

/// Frees the memory in quarantine, also when tracing is over.
/// @return whether there was any.
bool give_back_memory() noexcept {
  const Engine* const engine = running_engine();
  cupti::Interceptor* const cuda = engine != nullptr ? engine->interceptor_if_made() : nullptr;
  return cuda != nullptr && cuda->give_back();
}

int on_free_memory(convtrace_cuMemFree_fn real, uint64_t address) {
  if (cupti::Interceptor* cuda = launch_handler()) return cuda->free_memory(real, address);
  (void)give_back_memory();
  return real(address);
}

int on_memory_call(int call, uint64_t address, uint64_t bytes, void* stream) {
  if (cupti::Interceptor* cuda = launch_handler())
    return cuda->memory_call(static_cast<convtrace_memory_call>(call), address, bytes, stream);
  return give_back_memory() ? 1 : 0;
}

void on_give_cupti_away() {
  if (cupti::Interceptor* cuda = launch_handler()) cuda->give_cupti_away();
}

void on_nccl_begins(const convtrace_nccl_call* call) {
  if (!NcclRecorder::Nesting::enter()) return;
  guarded("nccl", false, [=] {
    if (Engine* engine = running_engine()) engine->nccl().begins(*call);
    return true;
  });
}

void on_nccl_ended(const convtrace_nccl_call* call, int result) {
  if (!NcclRecorder::Nesting::leave()) return;
  guarded("nccl", false, [=] {
    if (Engine* engine = running_engine()) engine->nccl().ended(*call, result);
    return true;
  });
  NcclRecorder::Nesting::ended(call->kind, result == 0);
  if (!NcclRecorder::Nesting::in_group()) NcclRecorder::forget_group();
}

constexpr convtrace_hooks_v1 kHooks{.bytes = sizeof(convtrace_hooks_v1),
                                    .memory_report = on_memory_report,
                                    .ended = {},
                                    .graph_call = on_graph_call,
                                    .ended_too = nullptr,
                                    .free_memory = on_free_memory,
                                    .memory_call = on_memory_call,
                                    .give_cupti_away = on_give_cupti_away,
                                    .launch = on_launch,
                                    .nccl_begins = on_nccl_begins,
                                    .nccl_ended = on_nccl_ended};

}  // namespace

bool publish_hooks() noexcept {
  using Slot = std::atomic<const convtrace_hooks_v1*>;
  auto* const slot = static_cast<Slot*>(dlsym(RTLD_DEFAULT, CONVTRACE_HOOKS_SYMBOL));
  if (slot == nullptr) return true;  // not preloaded: only the observer is there
  const convtrace_hooks_v1* expected = nullptr;
  return slot->compare_exchange_strong(expected, &kHooks) || expected == &kHooks;
}

std::atomic<int>* cpu_reports() noexcept {
  return static_cast<std::atomic<int>*>(dlsym(RTLD_DEFAULT, CONVTRACE_CPU_ALLOC_SYMBOL));
}

void mark_explained() noexcept {
  settings::leave_run_mark(getenv(settings::kAnnounceName.data()));
  if (auto* const slot = static_cast<int*>(dlsym(RTLD_DEFAULT, CONVTRACE_EXPLAINED_SYMBOL)))
    *slot = 1;
}

}  // namespace convtrace::engine
