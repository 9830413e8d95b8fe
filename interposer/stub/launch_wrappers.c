/// @file launch_wrappers.c
/// The gated launch functions: through the engine's table if one is published, else straight on.

#include "interposer/stub/gate.h"
#include "interposer/stub/hooks.h"

_Atomic(const struct convtrace_hooks_v1*) convtrace_hooks_v1;

/// One wrapper: `real` is the driver's function of the same name. PARAMETERS and ARGUMENTS are
/// parenthesised lists; `hook` takes (real, per_thread, ARGUMENTS...).
#define WRAPPER(name, type, hook, per_thread, PARAMETERS, ARGUMENTS) \
  int name PARAMETERS {                                              \
    const type real = (type)convtrace_driver_function(k_##name);     \
    const struct convtrace_hooks_v1* hooks = convtrace_hooks();      \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;              \
    if (!CONVTRACE_HAS_HOOK(hooks, hook)) return real ARGUMENTS;     \
    return hooks->hook(real, per_thread, UNWRAP ARGUMENTS);          \
  }
#define UNWRAP(...) __VA_ARGS__

/// An entry point and its _ptsz twin.
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

WRAPPERS(cuGraphLaunch, convtrace_cuGraphLaunch_fn, graph_launch, (void* graph_exec, void* stream),
         (graph_exec, stream))
