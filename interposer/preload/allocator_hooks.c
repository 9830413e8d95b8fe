/// @file allocator_hooks.c
/// PyTorch's memory reports. c10 calls these functions for each block its allocators hand out or
/// take back; being preloaded, ours are bound instead and pass every call on.
///
/// Blocks of CPU tensors pass ProfiledCPUMemoryReporter::New and Delete. While a profiler wants
/// reports, c10 keeps a table of their sizes there, behind a lock. Our reports need neither, so they
/// are made around those two, and profiling_enabled() returns false to c10. Where New and Delete are not
/// called through the PLT, c10 reports as to a profiler.
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
#define CPU_DEVICE 0xFF00 /* c10::Device: type 0, index -1 */
#define REPORTER_NEW "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"
#define REPORTER_DELETE "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"

typedef void (*report_3_fn)(void*, int64_t, uint64_t);
typedef void (*report_5_fn)(void*, int64_t, uint64_t, uint64_t, uint64_t);
typedef _Bool (*profiling_enabled_fn)(void);
typedef void (*reporter_new_fn)(void*, void*, size_t);
typedef void (*reporter_delete_fn)(void*, void*);

void report_3(void* pointer, int64_t bytes, uint64_t device) __asm__(REPORT_3);
void report_ll(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) __asm__(REPORT_LL);
void report_mm(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) __asm__(REPORT_MM);
_Bool profiling_enabled(void) __asm__(PROFILING_ENABLED);
void reporter_new(void* reporter, void* pointer, size_t bytes) __asm__(REPORTER_NEW);
void reporter_delete(void* reporter, void* pointer) __asm__(REPORTER_DELETE);

/// The block in whose New or Delete the calling thread is. An exception that leaves them does not reset
/// it, which does no harm: no other block has its address.
static _Thread_local const void* under_way __attribute__((tls_model("initial-exec")));

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

/// @return whether the wrappers of New and Delete report blocks of CPU tensors; else c10 reports them.
/// Poison needs the sizes of freed blocks, which only c10's table has.
static int tells_by_itself(void) {
  return !convtrace_poisons && atomic_load_explicit(&convtrace_cpu_alloc_v1, memory_order_relaxed);
}

static void tell_engine(void* pointer, int64_t bytes, uint64_t device) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (CONVTRACE_HAS_HOOK(hooks, memory_report)) hooks->memory_report(pointer, bytes, device);
}

/// A report of c10. @param caller  its return address. That of a report from New or Delete may lie in
/// this library, since c10 may call it last.
static void take_report(void* pointer, int64_t bytes, uint64_t device, const void* caller,
                        convtrace_function of_c10) {
  const int in_reporter = pointer == under_way;
  convtrace_poison(pointer, bytes, device, in_reporter ? (const void*)(uintptr_t)of_c10 : caller,
                   of_c10);
  if (!in_reporter || !tells_by_itself()) tell_engine(pointer, bytes, device);
}

void report_3(void* pointer, int64_t bytes, uint64_t device) {
  static _Atomic(convtrace_function) cache;
  const report_3_fn next = (report_3_fn)real(&cache, REPORT_3);
  take_report(pointer, bytes, device, __builtin_return_address(0), (convtrace_function)next);
  if (next != NULL) next(pointer, bytes, device);
}

void report_ll(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) {
  static _Atomic(convtrace_function) cache;
  const report_5_fn next = (report_5_fn)real(&cache, REPORT_LL);
  take_report(pointer, bytes, device, __builtin_return_address(0), (convtrace_function)next);
  if (next != NULL) next(pointer, bytes, allocated, reserved, device);
}

void report_mm(void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
               uint64_t device) {
  static _Atomic(convtrace_function) cache;
  const report_5_fn next = (report_5_fn)real(&cache, REPORT_MM);
  take_report(pointer, bytes, device, __builtin_return_address(0), (convtrace_function)next);
  if (next != NULL) next(pointer, bytes, allocated, reserved, device);
}

/// c10 reports CPU tensors only while this is true. Once it is false it stays false: c10 warns about a
/// free whose allocation it did not see, but only while it reports.
_Bool profiling_enabled(void) {
  static _Atomic(convtrace_function) cache;
  if (atomic_load_explicit(&convtrace_observer_missing, memory_order_relaxed)) {
    convtrace_call_observer();
  }
  const int is_told = under_way != NULL && tells_by_itself();
  if (!is_told && atomic_load_explicit(&convtrace_cpu_alloc_v1, memory_order_relaxed)) return 1;
  const profiling_enabled_fn next = (profiling_enabled_fn)real(&cache, PROFILING_ENABLED);
  return next != NULL && next();
}

void reporter_new(void* reporter, void* pointer, size_t bytes) {
  static _Atomic(convtrace_function) cache;
  const reporter_new_fn next = (reporter_new_fn)real(&cache, REPORTER_NEW);
  const void* const outer = under_way; /* convtrace_call_observer() may make tensors */
  under_way = pointer;
  if (next != NULL) next(reporter, pointer, bytes);
  under_way = outer;
  if (tells_by_itself()) tell_engine(pointer, (int64_t)bytes, CPU_DEVICE);
}

void reporter_delete(void* reporter, void* pointer) {
  static _Atomic(convtrace_function) cache;
  const reporter_delete_fn next = (reporter_delete_fn)real(&cache, REPORTER_DELETE);
  const void* const outer = under_way;
  under_way = pointer;
  if (next != NULL) next(reporter, pointer);
  under_way = outer;
  if (tells_by_itself()) tell_engine(pointer, -1, CPU_DEVICE); /* the engine knows the size */
}
