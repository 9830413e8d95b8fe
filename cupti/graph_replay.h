#pragma once
/// @file graph_replay.h
/// What a launch of a graph did: an event for each kernel it ran, and the values that its tagged
/// kernels left behind.
///
/// A value is that of the buffer when the whole graph is through: what kernels in the middle of it
/// wrote and others overwrote is not seen (graph_stats.h does that).
///
/// Place:    used by the gate, after the launch of a graph succeeded.
/// Threads:  any.

#include "cupti/cuda_state.h"

namespace convtrace::cupti {

/// Counts what cannot be told, and takes the values, unless nodes of ours in the graph do.
/// @param graph null: its making was not seen. @param launch of the graph itself.
/// @return what came of the values that rules ask for; with nodes of ours, if none of them
/// computes.
format::NotSampled sample_graph(CudaState& state, ExecutableGraph* graph, CUcontext context,
                                const Position& position, const format::Launch& launch);

void emit_graph_kernels(const CudaState& state, ExecutableGraph& graph,
                        const format::Launch& launch, bool memory_known);

}  // namespace convtrace::cupti
