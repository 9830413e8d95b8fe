#pragma once
/// @file graph_replay.h
/// Records the launch of a graph: an event for each kernel that it runs, and the values of kernels
/// that rules ask for. A kernel has the place where it was captured, as if it had run there.
///
/// Values are read before and after the launch of the whole graph. A value that one kernel of the
/// graph writes and a later one overwrites is not seen, nor is the input of a kernel that an
/// earlier kernel of the graph may have written.
///
/// Place:    used by the gate, around the launch of a graph.
/// Threads:  any.

#include <optional>

#include "cupti/abi/hooks_v1.h"
#include "cupti/gate/cuda_state.h"
#include "cupti/gate/launch_capture.h"

namespace convtrace::cupti {

/// Handles a report that a graph was captured, instantiated or changed; see hooks_v1.h.
void take_graph_call(CudaState& state, convtrace_graph_call call, CUgraphExec exec, void* object,
                     const void* params);

/// Before the launch: collects the values that rules ask for of the graph's kernels.
void collect_graph(const CudaState& state, ExecutableGraph& graph, LaunchCapture& capture);

/// After a launch that succeeded: counts the values that cannot be read, and queues the others.
/// @param graph  null if its instantiation was not seen. @param capture  as collect_graph() left
/// it.
/// @param launch  of the graph. @return the outcome for the values that rules ask for.
format::SampleOutcome sample_graph(const CudaState& state, ExecutableGraph* graph,
                                   std::optional<LaunchCapture>& capture, CUcontext context,
                                   const format::Launch& launch);

void emit_graph_kernels(CudaState& state, ExecutableGraph& graph, const format::Launch& launch,
                        bool memory_known);

}  // namespace convtrace::cupti
