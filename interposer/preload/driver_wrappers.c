/// @file driver_wrappers.c
/// The functions that replace the driver's in programs, by the rows of gated.def.

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "interposer/preload/gate.h"
#include "interposer/preload/hooks.h"

#define OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY */

_Atomic(const struct convtrace_hooks_v1*) convtrace_hooks_v1;
int convtrace_keeps_memory = 0;

/// The driver loads one library only (CUDA_INJECTION64_PATH). Where that is another tool's, the
/// first launch loads the engine: it then records launches, and says who has CUPTI.
static void start_beside_other_tool(void) {
  static atomic_flag tried = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&tried)) return;
  typedef void* (*dlopen_fn)(const char*, int);
  typedef unsigned (*start_fn)(void);
  const dlopen_fn open_library = (dlopen_fn)convtrace_find_after_self("dlopen");
  const char* path = getenv("CONVTRACE_CORE");
  if (open_library == NULL || path == NULL || open_library(path, RTLD_NOW | RTLD_LOCAL) == NULL)
    return;
  const start_fn start = (start_fn)convtrace_find_in("libconvtrace-core.so", "convtrace_start");
  if (start != NULL) start();
}

static const struct convtrace_hooks_v1* hooks_at_launch(void) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (hooks != NULL || !convtrace_other_injection) return hooks;
  start_beside_other_tool();
  return convtrace_hooks();
}

static void tell_graph(int call, void* exec, void* object, const void* params) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (CONVTRACE_HAS_HOOK(hooks, graph_call)) hooks->graph_call(call, exec, object, params);
}

/// @return the hooks if CONVTRACE_POISON or CONVTRACE_QUARANTINE is on, else null. Only then may the
/// engine keep freed memory, and free it when the device has too little.
static const struct convtrace_hooks_v1* hooks_of_memory(void) {
  return convtrace_keeps_memory ? convtrace_hooks() : NULL;
}

static int tell_memory(int call, uint64_t address, uint64_t bytes, void* stream) {
  const struct convtrace_hooks_v1* hooks = hooks_of_memory();
  return CONVTRACE_HAS_HOOK(hooks, memory_call) ? hooks->memory_call(call, address, bytes, stream)
                                                : 0;
}

#define NOTHING
#define TELL_GRAPH(call, exec, object, params) \
  tell_graph(CONVTRACE_GRAPH_##call, exec, object, params)
#define TELL_CAPTURE(call, stream) tell_graph(CONVTRACE_CAPTURE_##call, NULL, stream, NULL)
#define TELL_MEMORY(call, address, bytes, stream) \
  (void)tell_memory(CONVTRACE_MEMORY_##call, address, bytes, stream)
#define PER_THREAD(stream) ((stream) == NULL ? (void*)2 : (stream)) /* CU_STREAM_PER_THREAD */
#define INSTANTIATED TELL_GRAPH(INSTANTIATED, *exec, graph, NULL)
#define CAPTURE TELL_MEMORY(CAPTURE, 0, 0, NULL)
#define GREW TELL_MEMORY(GREW, 0, 0, NULL)
#define GIVEN(stream) TELL_MEMORY(GIVEN_IN_ORDER, *address, bytes, stream)
#define SHARED TELL_MEMORY(SHARED, address, 0, NULL)
#define WANTED TELL_MEMORY(WANTED, 0, 0, NULL)

/// The driver's function is called once more where there was too little memory and some could be
/// given back.
#define CALL(name, PARAMETERS, ARGUMENTS, BEFORE, AFTER)                                  \
  int name PARAMETERS {                                                                   \
    int(*const real) PARAMETERS = (int(*) PARAMETERS)convtrace_driver_function(k_##name); \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;                                   \
    BEFORE;                                                                               \
    int result = real ARGUMENTS;                                                          \
    if (result == OUT_OF_MEMORY && tell_memory(CONVTRACE_MEMORY_SHORT, 0, 0, NULL))       \
      result = real ARGUMENTS;                                                            \
    if (result == 0) {                                                                    \
      AFTER;                                                                              \
    }                                                                                     \
    return result;                                                                        \
  }

#define MEMBER(type, name) type name;
#define ARGUMENT(type, name) name
#define NEXT_ARGUMENT(type, name) , name
#define MEMBER_OF(type, name) p->name
#define NEXT_MEMBER_OF(type, name) , p->name

/// The hook gets all parameters as one struct, and `name_call` to make the driver's call with it.
#define LAUNCH(name, per_thread, call, FIELDS)                                                  \
  struct name##_params {                                                                        \
    FIELDS(MEMBER, MEMBER)                                                                      \
  };                                                                                            \
  typedef int (*name##_fn)(FIELDS(PARAMETER, NEXT_PARAMETER));                                  \
  static int name##_call(const void* params) {                                                  \
    const struct name##_params* const p = params;                                               \
    return ((name##_fn)convtrace_driver_function(k_##name))(FIELDS(MEMBER_OF, NEXT_MEMBER_OF)); \
  }                                                                                             \
  int name(FIELDS(PARAMETER, NEXT_PARAMETER)) {                                                 \
    const name##_fn real = (name##_fn)convtrace_driver_function(k_##name);                      \
    const struct convtrace_hooks_v1* hooks = hooks_at_launch();                                 \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;                                         \
    if (!CONVTRACE_HAS_HOOK(hooks, launch)) return real(FIELDS(ARGUMENT, NEXT_ARGUMENT));       \
    const struct name##_params all = {FIELDS(ARGUMENT, NEXT_ARGUMENT)};                         \
    return hooks->launch(CONVTRACE_LAUNCH_##call, per_thread, &all, name##_call);               \
  }

#define OWN(name, PARAMETERS)

#include "interposer/preload/gated.def"

/// A capture that went wrong has ended too.
static int end_capture(enum convtrace_gated function, void* stream, void* effective, void** graph) {
  int (*const real)(void*, void**) = (int (*)(void*, void**))convtrace_driver_function(function);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const int result = real(stream, graph);
  TELL_CAPTURE(ENDED, effective);
  return result;
}
int cuStreamEndCapture(void* stream, void** graph) {
  return end_capture(k_cuStreamEndCapture, stream, stream, graph);
}
int cuStreamEndCapture_ptsz(void* stream, void** graph) {
  return end_capture(k_cuStreamEndCapture_ptsz, stream, PER_THREAD(stream), graph);
}

int cuMemFree_v2(uint64_t address) {
  const convtrace_cuMemFree_fn real =
      (convtrace_cuMemFree_fn)convtrace_driver_function(k_cuMemFree_v2);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const struct convtrace_hooks_v1* hooks = hooks_of_memory();
  return CONVTRACE_HAS_HOOK(hooks, free_memory) ? hooks->free_memory(real, address) : real(address);
}
