// Where the kernels of a graph belong: to the place where they were captured.

#include "tests/unit/cupti/graph_scene.h"

namespace convtrace::cupti {
namespace {

using format::Launch;
using format::Place;

/// Where the program is.
Position here;

struct PlacedScene : Scene {
  explicit PlacedScene(std::vector<settings::Rule> rules_in = {})
      : Scene(std::move(rules_in), [](InterceptorOptions& options) {
          here = {};
          options.position = []() noexcept { return here; };
        }) {}

  Place go_to(const char* scope, uint32_t call = 0, format::Phase phase = format::Phase::kForward) {
    return here.place = {definitions.intern(scope), call, phase};
  }

  /// The places of the last launches, oldest first.
  std::vector<Place> last_places(size_t count) {
    const auto launches = sink.all<Launch>();
    REQUIRE(launches.size() >= count);
    std::vector<Place> places;
    for (size_t i = launches.size() - count; i < launches.size(); ++i)
      places.push_back(launches[i].place);
    return places;
  }
};

bool same(const Place& a, const Place& b) {
  return a.scope == b.scope && a.call == b.call && a.phase == b.phase;
}

bool same(const std::vector<Place>& a, const std::vector<Place>& b) {
  return std::ranges::equal(a, b, [](const Place& x, const Place& y) { return same(x, y); });
}

/// Two captured launches of `fill`, in two modules.
struct TwoPlaces {
  explicit TwoPlaces(PlacedScene& scene_in) : scene(scene_in) {
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    graph = capture("up", "down");
    REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    tell(CONVTRACE_GRAPH_INSTANTIATED, exec, graph);
  }
  ~TwoPlaces() {
    destroy(graph);
    cuGraphExecDestroy(exec);
    cuStreamDestroy(stream);
  }
  CUgraph capture(const char* first, const char* second) {
    CUgraph made = nullptr;
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    tell(CONVTRACE_CAPTURE_BEGUN, nullptr, stream);
    places = {scene.go_to(first, 1)};
    REQUIRE(scene.launch(scene.fill, stream) == CUDA_SUCCESS);
    places.push_back(scene.go_to(second, 2, format::Phase::kBackward));
    REQUIRE(scene.launch(scene.fill, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(stream, &made) == CUDA_SUCCESS);
    tell(CONVTRACE_CAPTURE_ENDED, nullptr, stream);
    return made;
  }
  void destroy(CUgraph gone) const {
    tell(CONVTRACE_GRAPH_SOURCE_DESTROYED, nullptr, gone);
    cuGraphDestroy(gone);
  }
  void tell(convtrace_graph_call call, void* about, void* object) const {
    scene.interceptor->graph_call(call, about, object, nullptr);
  }
  [[nodiscard]] int launch() const { return launch_graph(*scene.interceptor, exec, stream); }

  PlacedScene& scene;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<Place> places;
};

TEST_CASE("graph place: kernels and values of a replay are where the kernels were captured") {
  PlacedScene scene({rule_for("fill*")});
  scene.await_preparation();
  TwoPlaces graph(scene);
  scene.sink.clear();
  here.step = 7;
  const Place outside = scene.go_to("whole");
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  CHECK(same(scene.last_places(3), {outside, graph.places[0], graph.places[1]}));
  for (const Launch& launch : scene.sink.all<Launch>()) CHECK(launch.header.step == 7);
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1);  // one buffer: what the last kernel left
  CHECK(same(values[0].place, graph.places[1]));
  CHECK(values[0].header.step == 7);
}

TEST_CASE("graph place: a rule for a module takes what was captured in it") {
  const std::string module = GENERATE("up", "whole");
  settings::Rule rule = rule_for("fill*");
  rule.scope = settings::Pattern::compile(module).value();
  PlacedScene scene({std::move(rule)});
  scene.await_preparation();
  TwoPlaces graph(scene);
  scene.sink.clear();
  scene.go_to("whole");
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  scene.interceptor->collect();
  CHECK(scene.sink.all<format::TensorStats>().size() == (module == "up" ? 1 : 0));
}

TEST_CASE("graph place: an updated graph has the places of its new source") {
  PlacedScene scene;
  TwoPlaces graph(scene);
  const CUgraph other = graph.capture("left", "right");
  CUgraphExecUpdateResultInfo info{};
  REQUIRE(cuGraphExecUpdate(graph.exec, other, &info) == CUDA_SUCCESS);
  graph.tell(CONVTRACE_GRAPH_UPDATED, graph.exec, other);
  graph.destroy(other);
  const Place outside = scene.go_to("whole");
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  CHECK(same(scene.last_places(3), {outside, graph.places[0], graph.places[1]}));
}

TEST_CASE("graph place: new parameters of a kernel leave it where it is") {
  PlacedScene scene;
  TwoPlaces graph(scene);
  size_t count = 1;
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphGetNodes(graph.graph, &node, &count) == CUDA_SUCCESS);
  FillParams fill(scene.fill, scene.memory);
  REQUIRE(cuGraphExecKernelNodeSetParams(graph.exec, node, &fill.params) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_KERNEL_SET, graph.exec, node, &fill.params);
  scene.go_to("whole");
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  CHECK(scene.sink.all<Launch>().at(3).grid[0] == 5);
  CHECK(same(scene.last_places(2), graph.places));
}

TEST_CASE("graph place: kernels whose capture was not seen are where the graph is launched") {
  PlacedScene scene;
  CUgraphExec exec = nullptr;
  CUgraph graph = nullptr;
  SECTION("made node by node") {
    FillParams fill(scene.fill, scene.memory);
    CUgraphNode node = nullptr;
    REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphAddKernelNode(&node, graph, nullptr, 0, &fill.params) == CUDA_SUCCESS);
  }
  SECTION("with the handles of a graph that is gone") {
    TwoPlaces captured(scene);
    captured.tell(CONVTRACE_GRAPH_SOURCE_DESTROYED, nullptr, captured.graph);
    std::swap(graph, captured.graph);
  }
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
  const Place outside = scene.go_to("whole");
  REQUIRE(launch_graph(*scene.interceptor, exec, nullptr) == CUDA_SUCCESS);
  CHECK(same(scene.last_places(2), {outside, outside}));
  cuGraphExecDestroy(exec);
  cuGraphDestroy(graph);
}

TEST_CASE("graph place: a graph launched into a capture is where that launch was captured") {
  PlacedScene scene;
  TwoPlaces inner(scene);
  CUgraph outer = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE(cuStreamBeginCapture(inner.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  const Place place = scene.go_to("inner");
  REQUIRE(inner.launch() == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(inner.stream, &outer) == CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiateWithFlags(&exec, outer, 0) == CUDA_SUCCESS);
  inner.tell(CONVTRACE_GRAPH_INSTANTIATED, exec, outer);
  const Place outside = scene.go_to("whole");
  REQUIRE(launch_graph(*scene.interceptor, exec, inner.stream) == CUDA_SUCCESS);
  CHECK(same(scene.last_places(3), {outside, place, place}));
  cuGraphExecDestroy(exec);
  cuGraphDestroy(outer);
}

}  // namespace
}  // namespace convtrace::cupti
