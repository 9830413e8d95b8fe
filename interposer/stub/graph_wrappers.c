/// @file graph_wrappers.c
/// The gated functions that make and change executable graphs. The engine is told afterwards what
/// a launch of the graph will run: only now, outside of any callback, may it ask the driver.

#include "interposer/stub/gate.h"
#include "interposer/stub/hooks.h"

static void tell(int call, void* exec, void* graph_or_node, const void* params) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (CONVTRACE_HAS_HOOK(hooks, graph_call)) hooks->graph_call(call, exec, graph_or_node, params);
}

/// One wrapper: the driver's function of the same name, then, if it succeeded, `TOLD`.
#define WRAPPER(name, PARAMETERS, ARGUMENTS, TOLD)                                        \
  int name PARAMETERS {                                                                   \
    int(*const real) PARAMETERS = (int(*) PARAMETERS)convtrace_driver_function(k_##name); \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;                                   \
    const int result = real ARGUMENTS;                                                    \
    if (result == 0) tell TOLD;                                                           \
    return result;                                                                        \
  }

#define INSTANTIATED (CONVTRACE_GRAPH_INSTANTIATED, *exec, graph, NULL)
WRAPPER(cuGraphInstantiate, (void** exec, void* graph, void** error_node, char* log, size_t bytes),
        (exec, graph, error_node, log, bytes), INSTANTIATED)
WRAPPER(cuGraphInstantiate_v2,
        (void** exec, void* graph, void** error_node, char* log, size_t bytes),
        (exec, graph, error_node, log, bytes), INSTANTIATED)
WRAPPER(cuGraphInstantiateWithFlags, (void** exec, void* graph, unsigned long long flags),
        (exec, graph, flags), INSTANTIATED)
WRAPPER(cuGraphInstantiateWithParams, (void** exec, void* graph, void* params),
        (exec, graph, params), INSTANTIATED)
WRAPPER(cuGraphInstantiateWithParams_ptsz, (void** exec, void* graph, void* params),
        (exec, graph, params), INSTANTIATED)

#define UPDATED (CONVTRACE_GRAPH_UPDATED, exec, graph, NULL)
WRAPPER(cuGraphExecUpdate, (void* exec, void* graph, void** error_node, int* update_result),
        (exec, graph, error_node, update_result), UPDATED)
WRAPPER(cuGraphExecUpdate_v2, (void* exec, void* graph, void* result_info),
        (exec, graph, result_info), UPDATED)

#define KERNEL_SET (CONVTRACE_GRAPH_KERNEL_SET, exec, node, params)
WRAPPER(cuGraphExecKernelNodeSetParams, (void* exec, void* node, const void* params),
        (exec, node, params), KERNEL_SET)
WRAPPER(cuGraphExecKernelNodeSetParams_v2, (void* exec, void* node, const void* params),
        (exec, node, params), KERNEL_SET)
WRAPPER(cuGraphExecNodeSetParams, (void* exec, void* node, void* params), (exec, node, params),
        (CONVTRACE_GRAPH_NODE_SET, exec, node, params))
WRAPPER(cuGraphNodeSetEnabled, (void* exec, void* node, unsigned enabled), (exec, node, enabled),
        (enabled != 0 ? CONVTRACE_GRAPH_NODE_ENABLED : CONVTRACE_GRAPH_NODE_DISABLED, exec, node,
         NULL))

/// Told first: once the driver has destroyed it, another thread may get the same handle.
int cuGraphExecDestroy(void* exec) {
  int (*const real)(void*) = (int (*)(void*))convtrace_driver_function(k_cuGraphExecDestroy);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  tell(CONVTRACE_GRAPH_DESTROYED, exec, NULL, NULL);
  return real(exec);
}
