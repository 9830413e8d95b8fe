#include "tests/fakecuda/driver.h"

#include <cstdlib>
#include <cstring>

namespace fakecuda {

Driver& driver() {
  static Driver* const the_driver = new Driver;
  return *the_driver;
}

ContextStack& context_stack() {
  thread_local ContextStack stack;
  return stack;
}

CUcontext current_context() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : stack.back();
}

bool is_unfinished(CUcontext context) { return context == nullptr || !context->made.load(); }

void finish_context() {
  const CUcontext context = current_context();
  if (context != nullptr && context->maker == std::this_thread::get_id()) context->made.store(true);
}

uint64_t knob(const char* name, uint64_t missing) {
  const char* text = getenv(name);
  return text == nullptr ? missing : strtoull(text, nullptr, 10);
}

bool is_to_fail(const char* function) {
  static const char* const knob = getenv("FAKECUDA_FAIL");
  if (knob == nullptr) return false;
  static std::atomic<uint64_t> calls{0};
  const size_t length = strlen(function);
  if (strncmp(knob, function, length) != 0 || knob[length] != ':') return false;
  return ++calls == strtoull(knob + length + 1, nullptr, 10);
}

CUresult on_stream(CUstream stream, bool per_thread, std::function<void()> work) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  CUstream resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(resolved, {.kernel = nullptr,
                            .child = nullptr,
                            .other = std::move(work),
                            .other_type = CU_GRAPH_NODE_TYPE_MEMCPY});
}

CUresult entry_status(bool needs_context) {
  if (!driver().initialised.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  scheduler().step();
  if (const int lost = driver().sticky.load(); lost != CUDA_SUCCESS)
    return static_cast<CUresult>(lost);
  if (needs_context && current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

void* checked_translate(uint64_t address, size_t bytes) {
  void* pointer = driver().memory.translate(address, bytes);
  if (pointer == nullptr) driver().sticky.store(CUDA_ERROR_ILLEGAL_ADDRESS);
  return pointer;
}

}  // namespace fakecuda

using fakecuda::driver;

FAKECUDA_EXPORT void fakecuda_set_hook(fakecuda::Hook hook) {
  driver().hook.store(hook, std::memory_order_release);
}

FAKECUDA_EXPORT int fakecuda_device_of(CUcontext context) {
  const std::lock_guard lock(driver().mutex);
  return driver().contexts.contains(context) ? context->device : -1;
}
