#pragma once
/// @file driver.h
/// The state of the fake driver, and the first and last actions of every entry point.

#include <cuda.h>
#include <cupti.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/hook.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/objects.h"
#include "tests/fakecuda/scheduler.h"

#define FAKECUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace fakecuda {

struct Driver {
  std::mutex mutex;
  DeviceMemory memory;
  std::atomic<bool> initialised{false};
  std::atomic<int> sticky{CUDA_SUCCESS};
  std::atomic<Hook> hook{nullptr};
  std::atomic<uint64_t> launches{0};
  std::set<CUcontext> contexts;
  std::map<int, CUcontext> primary;
  std::set<CUstream> streams;  ///< without those inside contexts
  std::set<CUevent> events;
  std::map<CUmodule, std::unique_ptr<CUmod_st>> modules;

  /// Every object that was ever created: using one after its destruction gives an error code
  /// instead of crashing the test.
  std::vector<std::unique_ptr<CUctx_st>> all_contexts;
  std::vector<std::unique_ptr<CUstream_st>> all_streams;
  std::vector<std::unique_ptr<CUevent_st>> all_events;
};

/// Never destroyed, since threads of the host may be inside a call at exit.
Driver& driver();

/// The contexts of a thread. It has no destructor: exit handlers still make calls after the main
/// thread's variables were destroyed.
class ContextStack {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] CUcontext back() const { return contexts_[size_ - 1]; }
  void push_back(CUcontext context) {
    if (size_ == std::size(contexts_)) abort();
    contexts_[size_++] = context;
  }
  void pop_back() { --size_; }

 private:
  CUcontext contexts_[64] = {};
  size_t size_ = 0;
};
ContextStack& context_stack();
CUcontext current_context();
/// Whether there is none, or FAKECUDA_RUNTIME_CONTEXT is still making it.
bool is_unfinished(CUcontext context);
/// A call by the thread that makes the current context: from here on it is finished.
void finish_context();

/// Reads a number from the environment that configures a failure. @return `missing` if it is not
/// set.
uint64_t knob(const char* name, uint64_t missing);

/// The first check of every call but cuInit and pure queries: not initialised, context lost, no
/// current context.
CUresult entry_status(bool needs_context = true);

/// Returns an error if a capture forbids an unsafe call (allocation, module load, synchronisation),
/// and then invalidates that capture. Source: cuThreadExchangeStreamCaptureMode.
CUresult forbid_during_capture();

/// @return whether any capture is active.
bool is_capturing_any();

/// @return the stream object of a handle; null for an unknown handle.
CUstream resolve(CUstream stream, bool per_thread);

/// enqueue() for work on memory, after the checks that precede it.
CUresult on_stream(CUstream stream, bool per_thread, std::function<void()> work);

/// Runs `work` now, schedules it, or adds it to the stream's capture.
/// @param[out] number  of scheduled work.
CUresult enqueue(CUstream stream, Work work, std::atomic<uint64_t>* number = nullptr);

/// Waits for all work of the stream. @return the result of a call after that.
CUresult wait_for(CUstream stream);
/// The same for all streams of the current context.
CUresult wait_for_context();

/// @return the error of a call that uses the event.
CUresult event_status(CUevent event);

/// @param params as cuLaunchKernel takes them, or @param extra. @return the error of invalid
/// arguments.
CUresult copy_arguments(KernelWork& kernel, void** params, void** extra);

/// Called when a kernel uses memory that does not exist.
void* checked_translate(uint64_t address, size_t bytes);

/// Whether FAKECUDA_FAIL asks for this call to fail.
bool is_to_fail(const char* function);

/// Reports both ends of a call to CUPTI.
template <typename Params, typename Body>
CUresult around(uint32_t cbid, const char* function, const Params& params, Body call_body,
                const char* symbol = nullptr) {
  const auto body = [&]() -> CUresult {
    return is_to_fail(function) ? CUDA_ERROR_INVALID_VALUE : call_body();
  };
  if (cbid != CUPTI_DRIVER_TRACE_CBID_cuCtxSetCurrent) finish_context();
  const Hook hook = driver().hook.load(std::memory_order_acquire);
  if (hook == nullptr) return body();
  uint64_t correlation = 0;
  CUresult result = CUDA_ERROR_UNKNOWN;
  HookCall call;
  call.cbid = cbid;
  call.function = function;
  if constexpr (!std::is_null_pointer_v<Params>) call.params = &params;
  call.result = &result;
  call.symbol = symbol;
  call.correlation = &correlation;
  const auto tell = [&](uint32_t site) {
    call.site = site;
    call.context = current_context();
    call.context_uid = is_unfinished(call.context) ? 0 : call.context->uid;
    hook(call);
  };
  tell(CUPTI_API_ENTER);
  result = body();
  tell(CUPTI_API_EXIT);
  return result;
}

#define FAKECUDA_AROUND(function, params, ...) \
  ::fakecuda::around(CUPTI_DRIVER_TRACE_CBID_##function, #function, params, __VA_ARGS__)

}  // namespace fakecuda
