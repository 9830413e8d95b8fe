// Capture and graphs through the whole of cupti/, over the fake driver.

#include <thread>

#include "tests/unit/cupti/graph_scene.h"

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::LossReason;
using format::SampleOutcome;

TEST_CASE("graph: a captured launch is known as such, and a replay says what it ran") {
  Scene scene;
  {
    const Captured graph(scene, 2);
    for (int i = 0; i < 3; ++i) REQUIRE(graph.launch() == CUDA_SUCCESS);
  }
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2 + 3 * 3);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(launches[i].sampled == SampleOutcome::kCaptured);
    CHECK(launches[i].operands.size() == 1);
  }
  for (size_t i = 2; i < launches.size(); ++i) {
    const bool whole = (i - 2) % 3 == 0;
    CHECK(scene.name(launches[i].kernel) == (whole ? "cuGraphLaunch" : "_Z4fillPffj"));
    CHECK(launches[i].sampled == (whole ? SampleOutcome::kNotAsked : SampleOutcome::kInGraph));
    CHECK(launches[i].stream == launches[2].stream);
    if (whole) continue;
    CHECK(launches[i].grid[1] == 3);
    CHECK(launches[i].block[0] == 32);
    CHECK(launches[i].shared_bytes == 64);
    REQUIRE(launches[i].operands.size() == 1);
    CHECK(launches[i].operands[0].address == scene.memory);
    CHECK(launches[i].operands[0].generation == scene.sink.all<format::Alloc>()[0].generation);
  }
  CHECK(lost(scene, LossReason::kGraphUnseen) == 0);
}

TEST_CASE("graph: without CUPTI too a captured launch is known") {
  setenv("FAKECUDA_CUPTI_RESULT", "999", 1);
  Scene scene;
  unsetenv("FAKECUDA_CUPTI_RESULT");
  const Captured graph(scene);
  CHECK(scene.sink.all<Launch>()[0].sampled == SampleOutcome::kCaptured);
}

TEST_CASE("graph: a stream that joined a capture is capturing, one that did not is not sampled") {
  Scene scene({rule_for("fill*")});
  CUstream streams[3] = {};
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  for (CUstream& stream : streams)
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, streams[0]) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(streams[1], event, 0) == CUDA_SUCCESS);
  for (CUstream stream : streams) REQUIRE(scene.launch(scene.fill, stream) == CUDA_SUCCESS);
  // What it captures of memory has not happened either.
  REQUIRE(cuMemsetD8Async(scene.memory, 1, 64, streams[1]) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Copy>().empty());
  REQUIRE(cuStreamEndCapture(streams[0], &graph) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 3);
  CHECK(launches[0].sampled == SampleOutcome::kCaptured);
  CHECK(launches[1].sampled == SampleOutcome::kCaptured);
  CHECK(launches[2].sampled == SampleOutcome::kCapturing);
  CHECK(lost(scene, LossReason::kStreamUnsafe) == 1);  // captured ones come with the graph
  size_t nodes = 0;
  REQUIRE(cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 3);  // nothing of ours
  REQUIRE(cuMemsetD8Async(scene.memory, 1, 64, streams[1]) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Copy>().size() == 1);
  cuGraphDestroy(graph);
  cuEventDestroy(event);
}

TEST_CASE("graph: values of tagged kernels are taken behind each launch of the graph") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const Captured graph(scene, 3);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1 + 2);  // three kernels, one buffer: one value a replay
  for (size_t i = 1; i < values.size(); ++i) {
    CHECK(scene.name(values[i].kernel) == "_Z4fillPffj");
    CHECK(values[i].stats.mean == 2);
  }
  const auto launches = scene.sink.all<Launch>();
  CHECK(launches[3].sampled == SampleOutcome::kSampled);  // the graph launch itself
}

TEST_CASE("graph: a node's new parameters hold for the launches behind them") {
  Scene scene;
  CUdeviceptr other = 0;
  REQUIRE(cuMemAlloc(&other, 64) == CUDA_SUCCESS);
  Captured graph(scene, 2);
  FillParams fill(scene.fill, other);
  SECTION("set as a kernel node") {
    REQUIRE(cuGraphExecKernelNodeSetParams(graph.exec, graph.node, &fill.params) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_GRAPH_KERNEL_SET, graph.exec, graph.node, &fill.params);
  }
  SECTION("set as a node") {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = scene.fill;
    params.kernel.gridDimX = 5;
    params.kernel.gridDimY = params.kernel.gridDimZ = params.kernel.blockDimX =
        params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = fill.values;
    REQUIRE(cuGraphExecNodeSetParams(graph.exec, graph.node, &params) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_GRAPH_NODE_SET, graph.exec, graph.node, &params);
  }
  fill.address = 0;  // the caller's arguments are gone once the call has returned
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2 + 3);
  CHECK(launches[3].grid[0] == 5);
  REQUIRE(launches[3].operands.size() == 1);
  CHECK(launches[3].operands[0].address == other);
  CHECK(launches[4].operands[0].address == scene.memory);
}

TEST_CASE("graph: an updated graph runs what it was updated from, by the old node handles") {
  Scene scene;
  CUdeviceptr other = 0;
  REQUIRE(cuMemAlloc(&other, 64) == CUDA_SUCCESS);
  Captured graph(scene);
  CUgraph built = nullptr;
  CUgraphNode built_node = nullptr;
  FillParams fill(scene.fill, other);
  REQUIRE(cuGraphCreate(&built, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddKernelNode(&built_node, built, nullptr, 0, &fill.params) == CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  REQUIRE(cuGraphExecUpdate(graph.exec, built, &info) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_UPDATED, graph.exec, built, nullptr);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  REQUIRE(scene.sink.all<Launch>().size() == 3);
  CHECK(scene.sink.all<Launch>()[2].operands[0].address == other);
  REQUIRE(cuGraphNodeSetEnabled(graph.exec, graph.node, 0) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_NODE_DISABLED, graph.exec, graph.node, nullptr);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>().size() == 4);  // the launch of the graph alone
  cuGraphDestroy(built);
}

TEST_CASE("graph: kernels of a child graph are told, wherever their graphs have gone") {
  Scene scene;
  CUgraph inner = nullptr;
  CUgraph clone = nullptr;
  CUgraph outer = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  REQUIRE(cuLibraryLoadData(&library, &kImage, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  REQUIRE(cuLibraryGetKernel(&kernel, library, "_Z4fillPffj") == CUDA_SUCCESS);
  FillParams fill(nullptr, scene.memory);
  fill.params.kern = kernel;
  REQUIRE(cuGraphCreate(&inner, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddKernelNode(&node, inner, nullptr, 0, &fill.params) == CUDA_SUCCESS);
  REQUIRE(cuGraphClone(&clone, inner) == CUDA_SUCCESS);
  REQUIRE(cuGraphCreate(&outer, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, clone) == CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiateWithFlags(&exec, outer, 0) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, outer, nullptr);
  for (CUgraph graph : {inner, clone}) cuGraphDestroy(graph);
  REQUIRE(launch_graph(*scene.interceptor, exec, nullptr) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2);
  CHECK(scene.name(launches[1].kernel) == "_Z4fillPffj");
  CHECK(launches[1].grid[0] == 5);
  CHECK(launches[1].operands.size() == 1);

  CUdeviceptr other = 0;
  REQUIRE(cuMemAlloc(&other, 64) == CUDA_SUCCESS);
  fill.address = other;
  CUgraphNode unused = nullptr;
  REQUIRE(cuGraphCreate(&inner, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddKernelNode(&unused, inner, nullptr, 0, &fill.params) == CUDA_SUCCESS);
  SECTION("set as a child graph") {
    REQUIRE(cuGraphExecChildGraphNodeSetParams(exec, node, inner) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_GRAPH_CHILD_SET, exec, node, inner);
  }
  SECTION("set as a node") {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = inner;
    REQUIRE(cuGraphExecNodeSetParams(exec, node, &params) == CUDA_SUCCESS);
    scene.interceptor->graph_call(CONVTRACE_GRAPH_NODE_SET, exec, node, &params);
  }
  cuGraphDestroy(outer);  // its nodes name nothing any more
  REQUIRE(launch_graph(*scene.interceptor, exec, nullptr) == CUDA_SUCCESS);
  REQUIRE(scene.sink.all<Launch>().size() == 4);
  CHECK(scene.sink.all<Launch>()[3].operands[0].address == other);
  cuGraphDestroy(inner);
  cuGraphExecDestroy(exec);
  cuLibraryUnload(library);
}

TEST_CASE("graph: a graph whose making was not seen is counted at each launch") {
  Scene scene;
  const Captured graph(scene);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_DESTROYED, graph.exec, nullptr, nullptr);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>().size() == 1 + 2);
  CHECK(lost(scene, LossReason::kGraphUnseen) == 2);
}

TEST_CASE("graph: a graph launched into a capture runs nothing yet") {
  Scene scene;
  const Captured graph(scene);
  CUstream stream = nullptr;
  CUgraph outer = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(launch_graph(*scene.interceptor, graph.exec, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &outer) == CUDA_SUCCESS);
  REQUIRE(scene.sink.all<Launch>().size() == 2);
  CHECK(scene.sink.all<Launch>()[1].sampled == SampleOutcome::kCaptured);
  cuGraphDestroy(outer);
}

TEST_CASE("graph: a stream that is destroyed takes its capture along") {
  Scene scene({rule_for("fill*")});
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  REQUIRE(cuStreamDestroy(stream) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2);
  CHECK(launches[0].sampled == SampleOutcome::kCapturing);
  CHECK(launches[1].sampled != SampleOutcome::kCapturing);
}

TEST_CASE("graph: a context that ends takes its streams' captures along") {
  Scene scene({rule_for("fill*")});
  CUcontext other = nullptr;
  CUstream stream = nullptr;
  REQUIRE(cuCtxCreate(&other, nullptr, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_CAPTURE_BEGUN, nullptr, stream, nullptr);
  REQUIRE(cuCtxDestroy(other) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(scene.context) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>().at(0).sampled != SampleOutcome::kCapturing);
}

TEST_CASE("graph: another thread's per-thread stream captures on its own") {
  Scene scene({rule_for("fill*")});
  const auto on_own_stream = [&](convtrace_graph_call call) {
    scene.interceptor->graph_call(call, nullptr, CU_STREAM_PER_THREAD, nullptr);
  };
  on_own_stream(CONVTRACE_CAPTURE_BEGUN);
  std::thread([&] {
    on_own_stream(CONVTRACE_CAPTURE_BEGUN);
    on_own_stream(CONVTRACE_CAPTURE_ENDED);
  }).join();
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>().at(0).sampled == SampleOutcome::kCapturing);
  on_own_stream(CONVTRACE_CAPTURE_ENDED);
}

TEST_CASE("graph: what a stream captures of memory has not happened, a launch counts it") {
  Scene scene;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr inside = 0;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const size_t allocated = scene.sink.all<format::Alloc>().size();
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuMemAllocAsync(&inside, 64, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8Async(scene.memory, 1, 64, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoDAsync(scene.memory + 32, scene.memory, 32, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemFreeAsync(inside, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Copy>().empty());
  CHECK(scene.sink.all<format::Alloc>().size() == allocated);
  CHECK(scene.sink.all<format::Free>().empty());
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
  REQUIRE(launch_graph(*scene.interceptor, exec, stream) == CUDA_SUCCESS);
  CHECK(lost(scene, LossReason::kGraphMemory) == 2);  // the fake driver's pool is no node
  CHECK(lost(scene, LossReason::kGraphUnseen) == 0);
  REQUIRE(cuMemsetD8Async(scene.memory, 1, 64, stream) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Copy>().size() == 1);
  cuGraphExecDestroy(exec);
  cuGraphDestroy(graph);
}

}  // namespace
}  // namespace convtrace::cupti
