#pragma once
/// @file graph_replay.h
/// What a launch of a graph did: an event for each kernel it ran, and the values that its tagged
/// kernels left behind.
///
/// A value is that of the buffer when the whole graph is through, or in front of it: what kernels
/// in the middle of it wrote and others overwrote is not seen, nor what a kernel is given that
/// others may have written before it (graph_stats.h does that).
///
/// Place:    used by the gate, around the launch of a graph.
/// Threads:  any.

#include <optional>

#include "cupti/cuda_state.h"
#include "cupti/sampler.h"

namespace convtrace::cupti {

/// Before the launch: collects what rules ask for of the kernels that it will run.
void collect_graph(const CudaState& state, ExecutableGraph& graph, Sampler& sampler);

/// After it succeeded: counts what cannot be told, and takes the values, unless nodes of ours in
/// the graph do.
/// @param graph null: its making was not seen. @param sampler as collect_graph() left it.
/// @param launch of the graph itself.
/// @return what came of the values that rules ask for; with nodes of ours, if none of them
/// computes.
format::NotSampled sample_graph(const CudaState& state, ExecutableGraph* graph,
                                std::optional<Sampler>& sampler, CUcontext context,
                                const format::Launch& launch);

void emit_graph_kernels(const CudaState& state, ExecutableGraph& graph,
                        const format::Launch& launch, bool memory_known);

}  // namespace convtrace::cupti
