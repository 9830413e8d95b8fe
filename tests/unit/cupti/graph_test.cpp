// Capture and graphs through the whole of cupti/, over the fake driver.

#include <utility>

#include <optional>

#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::LossReason;
using format::NotSampled;

uint64_t lost(const Scene& scene, LossReason reason) {
  uint64_t count = 0;
  for (const auto& loss : scene.sink.all<format::Loss>())
    if (loss.reason == reason) count += loss.count;
  return count;
}

void capture_graphs(InterceptorOptions& options) { options.capture_graphs = true; }

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
  int launch() const { return scene.interceptor->graph_launch(real_graph_launch, 0, exec, stream); }

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

TEST_CASE("graph: a captured launch is known as such, and a replay says what it ran") {
  Scene scene;
  {
    const Captured graph(scene, 2);
    for (int i = 0; i < 3; ++i) REQUIRE(graph.launch() == CUDA_SUCCESS);
  }
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 2 + 3 * 3);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(launches[i].sampled == NotSampled::kCaptured);
    CHECK(launches[i].operands.size() == 1);
  }
  for (size_t i = 2; i < launches.size(); ++i) {
    const bool whole = (i - 2) % 3 == 0;
    CHECK(scene.name(launches[i].kernel) == (whole ? "cuGraphLaunch" : "_Z4fillPffj"));
    CHECK(launches[i].sampled == (whole ? NotSampled::kNotAsked : NotSampled::kInGraph));
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
  CHECK(scene.sink.all<Launch>()[0].sampled == NotSampled::kCaptured);
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
  REQUIRE(cuStreamEndCapture(streams[0], &graph) == CUDA_SUCCESS);
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 3);
  CHECK(launches[0].sampled == NotSampled::kCaptured);
  CHECK(launches[1].sampled == NotSampled::kCaptured);
  CHECK(launches[2].sampled == NotSampled::kCapturing);
  CHECK(lost(scene, LossReason::kStreamUnsafe) == 1);  // captured ones come with the graph
  size_t nodes = 0;
  REQUIRE(cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 2);  // nothing of ours
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
  CHECK(launches[3].sampled == NotSampled::kSampled);  // the graph launch itself
}

TEST_CASE("graph: captured with the graph, each kernel's values come with each launch") {
  Scene scene({rule_for("fill*")}, &capture_graphs);
  scene.await_preparation();
  {
    const Captured graph(scene, 3);
    size_t nodes = 0;
    REQUIRE(cuGraphGetNodes(graph.graph, nullptr, &nodes) == CUDA_SUCCESS);
    CHECK(nodes == 3 + 3);
    REQUIRE(graph.launch() == CUDA_SUCCESS);
    REQUIRE(graph.launch() == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(graph.exec, graph.stream) == CUDA_SUCCESS);  // past the gate: idle
  }
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1 + 2 * 3);
  for (size_t i = 1; i < values.size(); ++i) {
    CHECK(scene.name(values[i].kernel) == "_Z4fillPffj");
    CHECK(values[i].stats.mean == 2);
    CHECK(values[i].header.step == 3);
  }
  // Ours are no launches of the program.
  const auto launches = scene.sink.all<Launch>();
  REQUIRE(launches.size() == 3 + 2 * 4 + 1);
  CHECK(launches[3].sampled == NotSampled::kSampled);
  CHECK(launches[3 + 2 * 4].sampled == NotSampled::kObservedOnly);
  CHECK(scene.sink.all<format::Loss>().empty());
}

TEST_CASE("graph: values captured with a graph follow its update to another") {
  Scene scene({rule_for("fill*")}, &capture_graphs);
  scene.await_preparation();
  Captured graph(scene);
  CUdeviceptr const first = std::exchange(scene.memory, 0);
  REQUIRE(cuMemAlloc(&scene.memory, 64) == CUDA_SUCCESS);
  const Captured other(scene);
  CUgraphExecUpdateResultInfo info{};
  REQUIRE(cuGraphExecUpdate(graph.exec, other.graph, &info) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_UPDATED, graph.exec, other.graph, nullptr);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 2);
  CHECK(values[1].address == scene.memory);
  CHECK(values[1].address != first);
  CHECK(values[1].stats.mean == 2);
}

TEST_CASE("graph: a launch that fails brings no values, the one behind it does") {
  Scene scene({rule_for("fill*")}, &capture_graphs);
  scene.await_preparation();
  const Captured graph(scene);
  const auto fails = [](void*, void*) -> int { return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; };
  CHECK(scene.interceptor->graph_launch(fails, 0, graph.exec, graph.stream) ==
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  scene.interceptor->collect();
  CHECK(scene.sink.all<format::TensorStats>().size() == 1 + 1);
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
  for (CUgraph graph : {inner, clone, outer}) cuGraphDestroy(graph);
  REQUIRE(scene.interceptor->graph_launch(real_graph_launch, 0, exec, nullptr) == CUDA_SUCCESS);
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
  REQUIRE(cuGraphExecChildGraphNodeSetParams(exec, node, inner) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_CHILD_SET, exec, node, inner);
  REQUIRE(scene.interceptor->graph_launch(real_graph_launch, 0, exec, nullptr) == CUDA_SUCCESS);
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
  REQUIRE(scene.interceptor->graph_launch(real_graph_launch, 0, graph.exec, stream) ==
          CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &outer) == CUDA_SUCCESS);
  REQUIRE(scene.sink.all<Launch>().size() == 2);
  CHECK(scene.sink.all<Launch>()[1].sampled == NotSampled::kCaptured);
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
  CHECK(launches[0].sampled == NotSampled::kCapturing);
  CHECK(launches[1].sampled != NotSampled::kCapturing);
}

}  // namespace
}  // namespace convtrace::cupti
