/// @file allocator_hooks.c
/// PyTorch's memory reports. c10 calls these functions for each block its allocators hand out or
/// take back; being preloaded, ours are bound instead and pass every call on.
///
/// Threads:  any; callers hold the allocator's lock, so nothing here may wait or allocate.
/// Errors:   none.
/// Source:   c10/core/Allocator.h: the three spellings are those of torch 1.6, 1.10 and 2.0. The
///           last parameter is a c10::Device of 2 or 4 bytes in a register, of which only the low
///           byte, the type, has a fixed place.

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "interposer/preload/elf_lookup.h"
#include "interposer/preload/hooks.h"
#include "interposer/preload/poison.h"
#include "interposer/preload/python_injection.h"

extern _Atomic(int) convtrace_cpu_alloc_v1;

#define REPORT_3 "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE"
#define REPORT_LL "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"
#define REPORT_MM "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define PROFILING_ENABLED "_ZN3c1022memoryProfilingEnabledEv"

typedef void (*report_3_fn)(void*, int64_t, uint64_t);
typedef void (*report_5_fn)(void*, int64_t, uint64_t, uint64_t, uint64_t);
typedef _Bool (*profiling_enabled_fn)(void);

void report_3(void* pointer, int64_t bytes, uint64_t device) __asm__(REPORT_3);
void report_ll(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) __asm__(REPORT_LL);
void report_mm(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) __asm__(REPORT_MM);
_Bool profiling_enabled(void) __asm__(PROFILING_ENABLED);

/// The next definition in load order is libc10's. RTLD_NEXT would not find it: Python loads torch
/// outside the global scope.
static convtrace_function real(_Atomic(convtrace_function)* cache, const char* symbol) {
  convtrace_function function = atomic_load_explicit(cache, memory_order_acquire);
  if (function == NULL) {
    function = convtrace_find_after_self(symbol);
    atomic_store_explicit(cache, function, memory_order_release);
  }
  return function;
}

static void tell_engine(void* pointer, int64_t bytes, uint64_t device) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (CONVTRACE_HAS_HOOK(hooks, memory_report)) hooks->memory_report(pointer, bytes, device);
}

void report_3(void* pointer, int64_t bytes, uint64_t device) {
  static _Atomic(convtrace_function) cache;
  const report_3_fn next = (report_3_fn)real(&cache, REPORT_3);
  convtrace_poison(pointer, bytes, device, __builtin_return_address(0), (convtrace_function)next);
  tell_engine(pointer, bytes, device);
  if (next != NULL) next(pointer, bytes, device);
}

void report_ll(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) {
  static _Atomic(convtrace_function) cache;
  const report_5_fn next = (report_5_fn)real(&cache, REPORT_LL);
  convtrace_poison(pointer, bytes, device, __builtin_return_address(0), (convtrace_function)next);
  tell_engine(pointer, bytes, device);
  if (next != NULL) next(pointer, bytes, allocated, reserved, device);
}

void report_mm(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) {
  static _Atomic(convtrace_function) cache;
  const report_5_fn next = (report_5_fn)real(&cache, REPORT_MM);
  convtrace_poison(pointer, bytes, device, __builtin_return_address(0), (convtrace_function)next);
  tell_engine(pointer, bytes, device);
  if (next != NULL) next(pointer, bytes, allocated, reserved, device);
}

/// c10 reports CPU tensors only while this is true. Once it is false it stays so: c10 complains
/// about a free whose allocation it did not see, never about what it is not asked to look at.
_Bool profiling_enabled(void) {
  static _Atomic(convtrace_function) cache;
  if (atomic_load_explicit(&convtrace_observer_missing, memory_order_relaxed)) {
    convtrace_call_observer();
  }
  if (atomic_load_explicit(&convtrace_cpu_alloc_v1, memory_order_relaxed)) return 1;
  const profiling_enabled_fn next = (profiling_enabled_fn)real(&cache, PROFILING_ENABLED);
  return next != NULL && next();
}
