// Values captured with a graph (CONVTRACE_GRAPHS=capture), over the fake driver.

#include <utility>

#include "cupti/scratch_pool.h"
#include "tests/unit/cupti/graph_scene.h"

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::LossReason;
using format::NotSampled;

void capture_graphs(InterceptorOptions& options) { options.capture_graphs = true; }

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

TEST_CASE("graph: a node whose memory is gone by now computes nothing, and is counted") {
  Scene scene({rule_for("fill*")}, &capture_graphs);
  scene.await_preparation();
  const Captured graph(scene);
  REQUIRE(cuMemFree(scene.memory) == CUDA_SUCCESS);
  const auto runs_nothing = [](void*, void*) -> int { return CUDA_SUCCESS; };
  REQUIRE(scene.interceptor->graph_launch(runs_nothing, 0, graph.exec, graph.stream) ==
          CUDA_SUCCESS);
  CHECK(lost(scene, LossReason::kGraphUnseen) == 1);
  CHECK(scene.sink.all<Launch>().at(1).sampled != NotSampled::kSampled);
  REQUIRE(cuMemAlloc(&scene.memory, 64) == CUDA_SUCCESS);
}

Position position_now;

TEST_CASE("graph: a replay's step decides, not the step of the capture") {
  settings::Rule rule = rule_for("fill*");
  rule.steps = settings::StepSet::parse_steps("5-6").value();
  position_now = {};
  Scene scene({rule}, [](InterceptorOptions& options) {
    options.capture_graphs = true;
    options.position = []() noexcept { return position_now; };
  });
  scene.await_preparation();
  position_now.step = 4;
  position_now.capture = false;
  const Captured graph(scene);
  size_t nodes = 0;
  REQUIRE(cuGraphGetNodes(graph.graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 2);
  const auto launch_at = [&](uint32_t step, bool capture) {
    position_now.step = step;
    position_now.capture = capture;
    REQUIRE(graph.launch() == CUDA_SUCCESS);
  };
  launch_at(4, true);
  launch_at(5, true);
  launch_at(6, false);
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1 + 1);
  CHECK(values[1].header.step == 5);
  CHECK(scene.sink.all<format::Loss>().empty());
}

TEST_CASE("graph: tagged kernels without a node of ours are counted beside those with one") {
  Scene scene({rule_for("fill*")}, &capture_graphs);
  scene.await_preparation();
  Captured graph(scene);
  CUgraph inner = nullptr;
  CUgraphNode node = nullptr;
  FillParams fill(scene.fill, scene.memory);
  REQUIRE(cuGraphCreate(&inner, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddKernelNode(&node, inner, nullptr, 0, &fill.params) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddChildGraphNode(&node, graph.graph, nullptr, 0, inner) == CUDA_SUCCESS);
  cuGraphExecDestroy(graph.exec);
  REQUIRE(cuGraphInstantiateWithFlags(&graph.exec, graph.graph, 0) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, graph.exec, graph.graph, nullptr);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  scene.interceptor->collect();
  CHECK(scene.sink.all<format::TensorStats>().size() == 1 + 1);
  CHECK(lost(scene, LossReason::kGraphUnseen) == 1);
  cuGraphDestroy(inner);
}

TEST_CASE("graph: nodes' memory is given again when its last result is out, within its bound") {
  constexpr CUdeviceptr kBase = 0x1000;
  ScratchPool pool;
  bool done = false;
  const auto take = [&](size_t bytes) { return pool.take(bytes, [&](uint64_t) { return done; }); };
  CHECK(take(300) == 0);  // not prepared
  pool.set_memory(kBase);
  const CUdeviceptr first = take(300);
  CHECK(first == kBase);
  const CUdeviceptr second = take(300);
  CHECK(second >= first + 300);
  pool.give_back(first, 7);
  CHECK(take(300) > second);  // its result is under way
  done = true;
  CHECK(take(400) > second);  // another size would find its ticket elsewhere
  CHECK(take(300) == first);
  CHECK(take(ScratchPool::kBytes) == 0);
  pool.give_back(second, std::nullopt);
  CHECK(take(300) == second);
}

TEST_CASE("graph: memory of nodes comes back with each graph that is destroyed") {
  Scene scene({rule_for("fill*")}, &capture_graphs);
  scene.await_preparation();
  for (int i = 0; i < 3; ++i) {
    const Captured graph(scene, 3);
    for (int replay = 0; replay < 2; ++replay) REQUIRE(graph.launch() == CUDA_SUCCESS);
    scene.interceptor->collect();
  }
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1 + 3 * 2 * 3);
  for (const auto& value : values) CHECK(value.stats.count == 16);
}

}  // namespace
}  // namespace convtrace::cupti
