#pragma once
/// @file driver.h
/// The state of the fake driver, and what every entry point does first and last.

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

  /// Every object ever made: a use after its destruction is an error code, not a crash of the test.
  std::vector<std::unique_ptr<CUctx_st>> all_contexts;
  std::vector<std::unique_ptr<CUstream_st>> all_streams;
  std::vector<std::unique_ptr<CUevent_st>> all_events;
};

/// Lives until the process ends: threads of the host may be inside a call at exit.
Driver& driver();

/// A thread's contexts. It has no destructor: exit handlers still make calls when those of the main
/// thread's variables have run.
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

/// Turns a number from the environment into a failure knob. @return `missing` when it is not set.
uint64_t knob(const char* name, uint64_t missing);

/// What every call but cuInit and the pure queries returns before anything else: not initialised,
/// lost context, none current.
CUresult entry_status(bool needs_context = true);

/// Whether an unsafe call (allocation, module load, synchronisation) is forbidden by a capture; it
/// then invalidates that capture. Source: cuThreadExchangeStreamCaptureMode.
CUresult forbid_during_capture();

/// @return whether a capture is under way anywhere.
bool is_capturing_any();

/// @return the stream object of a handle; null for an unknown one.
CUstream resolve(CUstream stream, bool per_thread);

/// enqueue() of work on memory, with the checks that come before it.
CUresult on_stream(CUstream stream, bool per_thread, std::function<void()> work);

/// Runs `work` now, in stream order, or has it scheduled, or adds it to the stream's capture.
/// @param[out] number  of what is scheduled.
CUresult enqueue(CUstream stream, Work work, std::atomic<uint64_t>* number = nullptr);

/// Waits for what the stream has to do. @return as any call behind that.
CUresult wait_for(CUstream stream);
/// The same for all streams of the current context.
CUresult wait_for_context();

/// @return the error of using that event.
CUresult event_status(CUevent event);

/// @param params as cuLaunchKernel takes them, or @param extra. @return the arguments' error.
CUresult copy_arguments(KernelWork& kernel, void** params, void** extra);

/// A kernel touched memory that is not there.
void* checked_translate(uint64_t address, size_t bytes);

/// Whether FAKECUDA_FAIL wants this call to fail.
bool is_to_fail(const char* function);

/// Reports both ends of a call to CUPTI.
template <typename Params, typename Body>
CUresult around(uint32_t cbid, const char* function, const Params& params, Body call_body,
                const char* symbol = nullptr) {
  const auto body = [&]() -> CUresult {
    return is_to_fail(function) ? CUDA_ERROR_INVALID_VALUE : call_body();
  };
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
    call.context_uid = call.context == nullptr ? 0 : call.context->uid;
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
