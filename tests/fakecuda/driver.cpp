#include "tests/fakecuda/driver.h"

#include <cstdlib>

namespace fakecuda {

Driver& driver() {
  static Driver* const the_driver = new Driver;
  return *the_driver;
}

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

CUcontext current_context() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : stack.back();
}

uint64_t knob(const char* name, uint64_t missing) {
  const char* text = getenv(name);
  return text == nullptr ? missing : strtoull(text, nullptr, 10);
}

CUresult entry_status(bool needs_context) {
  if (!driver().initialised.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
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
