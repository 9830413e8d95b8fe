/// @file graph_wrappers.c
/// The gated functions that record, make and change graphs. The engine is told afterwards what
/// a launch of the graph will run: only now, outside of any callback, may it ask the driver.

#include "interposer/preload/gate.h"
#include "interposer/preload/hooks.h"

static void tell(int call, void* exec, void* object, const void* params) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (CONVTRACE_HAS_HOOK(hooks, graph_call)) hooks->graph_call(call, exec, object, params);
}

/// One wrapper: `BEFORE`, the driver's function of the same name, then, if it succeeded, `TOLD`.
#define WRAPPER_AFTER(name, PARAMETERS, ARGUMENTS, BEFORE, TOLD)                          \
  int name PARAMETERS {                                                                   \
    int(*const real) PARAMETERS = (int(*) PARAMETERS)convtrace_driver_function(k_##name); \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;                                   \
    BEFORE;                                                                               \
    const int result = real ARGUMENTS;                                                    \
    if (result == 0) tell TOLD;                                                           \
    return result;                                                                        \
  }
#define WRAPPER(name, PARAMETERS, ARGUMENTS, TOLD) \
  WRAPPER_AFTER(name, PARAMETERS, ARGUMENTS, (void)0, TOLD)
#define CAPTURE_WRAPPER(name, PARAMETERS, ARGUMENTS, TOLD) \
  WRAPPER_AFTER(name, PARAMETERS, ARGUMENTS, convtrace_capture_begins(), TOLD)

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
WRAPPER(cuGraphExecChildGraphNodeSetParams, (void* exec, void* node, void* child),
        (exec, node, child), (CONVTRACE_GRAPH_CHILD_SET, exec, node, child))
WRAPPER(cuGraphNodeSetEnabled, (void* exec, void* node, unsigned enabled), (exec, node, enabled),
        (enabled != 0 ? CONVTRACE_GRAPH_NODE_ENABLED : CONVTRACE_GRAPH_NODE_DISABLED, exec, node,
         NULL))

/// CU_STREAM_PER_THREAD
#define PER_THREAD(stream) ((stream) == NULL ? (void*)2 : (stream))
#define BEGUN (CONVTRACE_CAPTURE_BEGUN, NULL, stream, NULL)
#define BEGUN_PTSZ (CONVTRACE_CAPTURE_BEGUN, NULL, PER_THREAD(stream), NULL)
CAPTURE_WRAPPER(cuStreamBeginCapture, (void* stream), (stream), BEGUN)
CAPTURE_WRAPPER(cuStreamBeginCapture_ptsz, (void* stream), (stream), BEGUN_PTSZ)
CAPTURE_WRAPPER(cuStreamBeginCapture_v2, (void* stream, int mode), (stream, mode), BEGUN)
CAPTURE_WRAPPER(cuStreamBeginCapture_v2_ptsz, (void* stream, int mode), (stream, mode), BEGUN_PTSZ)
CAPTURE_WRAPPER(cuStreamBeginCaptureToGraph,
                (void* stream, void* graph, const void* dependencies, const void* edges,
                 size_t count, int mode),
                (stream, graph, dependencies, edges, count, mode), BEGUN)
CAPTURE_WRAPPER(cuStreamBeginCaptureToGraph_ptsz,
                (void* stream, void* graph, const void* dependencies, const void* edges,
                 size_t count, int mode),
                (stream, graph, dependencies, edges, count, mode), BEGUN_PTSZ)

/// A capture that went wrong has ended too.
static int end_capture(enum convtrace_gated function, void* stream, void* effective, void** graph) {
  int (*const real)(void*, void**) = (int (*)(void*, void**))convtrace_driver_function(function);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const int result = real(stream, graph);
  tell(CONVTRACE_CAPTURE_ENDED, NULL, effective, NULL);
  return result;
}
int cuStreamEndCapture(void* stream, void** graph) {
  return end_capture(k_cuStreamEndCapture, stream, stream, graph);
}
int cuStreamEndCapture_ptsz(void* stream, void** graph) {
  return end_capture(k_cuStreamEndCapture_ptsz, stream, PER_THREAD(stream), graph);
}

/// Told first: once the driver has destroyed it, another thread may get the same handle.
int cuGraphExecDestroy(void* exec) {
  int (*const real)(void*) = (int (*)(void*))convtrace_driver_function(k_cuGraphExecDestroy);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  tell(CONVTRACE_GRAPH_DESTROYED, exec, NULL, NULL);
  return real(exec);
}
