#pragma once
/// @file graph_scene.h
/// A graph in the scene of cuda_scene.h.

#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {

inline uint64_t lost(const Scene& scene, format::LossReason reason) {
  uint64_t count = 0;
  for (const auto& loss : scene.sink.all<format::Loss>())
    if (loss.reason == reason) count += loss.count;
  return count;
}

/// A captured launch of `fill` over 16 floats, instantiated through the gate.
struct Captured {
  explicit Captured(Scene& scene_in, int launches = 1) : scene(scene_in) {
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_CAPTURE_BEGUN, nullptr, stream, nullptr);
    for (int i = 0; i < launches; ++i) REQUIRE(scene.launch(scene.fill, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_CAPTURE_ENDED, nullptr, stream, nullptr);
    REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
    size_t count = 1;
    REQUIRE(cuGraphGetNodes(graph, &node, &count) == CUDA_SUCCESS);
  }
  ~Captured() {
    scene.interceptor->graph_call(CONVTRACE_GRAPH_DESTROYED, exec, nullptr, nullptr);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuStreamDestroy(stream);
  }
  int launch() const { return launch_graph(*scene.interceptor, exec, stream); }

  Scene& scene;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
};

/// Arguments of `fill`, as a node takes them.
struct FillParams {
  FillParams(CUfunction function, CUdeviceptr to) : address(to) {
    params.func = function;
    params.gridDimX = 5;
    params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = values;
  }
  CUdeviceptr address;
  float value = 7;
  uint32_t count = 8;
  void* values[3] = {&address, &value, &count};
  CUDA_KERNEL_NODE_PARAMS params{};
};

}  // namespace convtrace::cupti
