#pragma once
/// @file graph_replay.h
/// What a launch of a graph did: an event for each kernel it ran, and the values that its tagged
/// kernels left behind.
///
/// A value is that of the buffer when the whole graph is through, or in front of it: what kernels
/// in the middle of it wrote and others overwrote is not seen, nor what a kernel is given that
/// others may have written before it.
///
/// Place:    used by the gate, around the launch of a graph.
/// Threads:  any.

#include <optional>

#include "cupti/abi/hooks_v1.h"
#include "cupti/gate/cuda_state.h"
#include "cupti/gate/launch_capture.h"

namespace convtrace::cupti {

/// A graph was recorded, made or changed: see hooks_v1.h.
void take_graph_call(CudaState& state, convtrace_graph_call call, CUgraphExec exec, void* object,
                     const void* params);

/// Before the launch: collects what rules ask for of the kernels that it will run.
void collect_graph(const CudaState& state, ExecutableGraph& graph, LaunchCapture& capture);

/// After it succeeded: counts what cannot be told, and takes the values.
/// @param graph null: its making was not seen. @param capture as collect_graph() left it.
/// @param launch of the graph itself.
/// @return what came of the values that rules ask for.
format::SampleOutcome sample_graph(const CudaState& state, ExecutableGraph* graph,
                                   std::optional<LaunchCapture>& capture, CUcontext context,
                                   const format::Launch& launch);

void emit_graph_kernels(CudaState& state, ExecutableGraph& graph, const format::Launch& launch,
                        bool memory_known);

}  // namespace convtrace::cupti
