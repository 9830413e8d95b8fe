/// @file launch_wrappers.c
/// The gated launch functions: through the engine's table if one is published, else straight on.

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "interposer/preload/gate.h"
#include "interposer/preload/hooks.h"

_Atomic(const struct convtrace_hooks_v1*) convtrace_hooks_v1;

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

/// One wrapper: `real` is the driver's function of the same name. PARAMETERS and ARGUMENTS are
/// parenthesised lists; `hook` takes (real, per_thread, ARGUMENTS...).
#define WRAPPER(name, type, hook, per_thread, PARAMETERS, ARGUMENTS) \
  int name PARAMETERS {                                              \
    const type real = (type)convtrace_driver_function(k_##name);     \
    const struct convtrace_hooks_v1* hooks = hooks_at_launch();      \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;              \
    if (!CONVTRACE_HAS_HOOK(hooks, hook)) return real ARGUMENTS;     \
    return hooks->hook(real, per_thread, UNWRAP ARGUMENTS);          \
  }
#define UNWRAP(...) __VA_ARGS__

/// An entry point and its per-thread variant, _ptsz.
#define WRAPPERS(name, type, hook, PARAMETERS, ARGUMENTS) \
  WRAPPER(name, type, hook, 0, PARAMETERS, ARGUMENTS)     \
  WRAPPER(name##_ptsz, type, hook, 1, PARAMETERS, ARGUMENTS)

WRAPPERS(cuLaunchKernel, convtrace_cuLaunchKernel_fn, launch_kernel,
         (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
          unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** params,
          void** extra),
         (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
          extra))

WRAPPERS(cuLaunchKernelEx, convtrace_cuLaunchKernelEx_fn, launch_kernel_ex,
         (const void* config, void* function, void** params, void** extra),
         (config, function, params, extra))

WRAPPERS(cuLaunchCooperativeKernel, convtrace_cuLaunchCooperativeKernel_fn, launch_cooperative,
         (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
          unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** params),
         (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
          params))

/// Each launch of the list names its stream: there is no per-thread variant.
WRAPPER(cuLaunchCooperativeKernelMultiDevice, convtrace_cuLaunchCooperativeKernelMultiDevice_fn,
        launch_multi_device, 0, (void* list, unsigned count, unsigned flags), (list, count, flags))

WRAPPERS(cuGraphLaunch, convtrace_cuGraphLaunch_fn, graph_launch, (void* graph_exec, void* stream),
         (graph_exec, stream))
