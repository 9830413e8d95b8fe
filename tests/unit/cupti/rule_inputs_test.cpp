// Values of what a kernel is given, in front of its launch: over the fake driver.

#include "tests/unit/cupti/graph_scene.h"

namespace convtrace::cupti {
namespace {

using format::LossReason;
using format::SampleOutcome;

settings::Rule inputs_of_fill() {
  settings::Rule rule = rule_for("fill*");
  rule.inputs = {0};
  return rule;
}

TEST_CASE("rule inputs: what a rule names as input is told as it was in front of the launch") {
  settings::Rule rule = rule_for("fill*");
  rule.inputs = {0, 2};  // and a number
  rule.samples = 12;
  Scene scene({rule}, [](InterceptorOptions& options) { options.samples = 0; });
  scene.await_preparation();
  REQUIRE(cuMemsetD32(scene.memory, 0, 16) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  scene.interceptor->collect();
  const auto values = scene.sink.all<format::TensorStats>();
  REQUIRE(values.size() == 1 + 2);
  CHECK(scene.definitions.text(values[1].slot) == "input:0");
  CHECK(values[1].stats.max == format::Scalar::f64(0));
  CHECK(scene.definitions.text(values[2].slot) == "arg:0");
  CHECK(values[2].stats.max == format::Scalar::f64(2));
  CHECK(values[2].samples.size() == 16 * sizeof(float));  // all that there are
  CHECK(values[2].leading.size() == 12 * sizeof(float));
}

TEST_CASE("rule inputs: a rule of inputs alone takes them, and the launch has values") {
  settings::Rule rule = rule_for("fill*");
  rule.outputs.clear();
  rule.inputs = {0};
  Scene scene({rule});
  scene.await_preparation();
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  scene.interceptor->collect();
  CHECK(scene.sink.all<format::TensorStats>().size() == 1 + 1);
  CHECK(scene.sink.all<format::Launch>().back().sampled == SampleOutcome::kSampled);
}

TEST_CASE("rule inputs: where nothing may be launched in front they are counted as lost") {
  settings::Rule rule = rule_for("fill*");
  rule.outputs.clear();
  rule.inputs = {0};
  Scene scene({rule});
  scene.await_preparation();
  CUstream capturing = nullptr;
  REQUIRE(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_CAPTURE_BEGUN, nullptr, capturing, nullptr);
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  CHECK(scene.sink.all<format::Launch>().back().sampled == SampleOutcome::kCapturing);
  CHECK(lost(scene, LossReason::kStreamUnsafe) == 1);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_CAPTURE_ENDED, nullptr, capturing, nullptr);
  cuGraphDestroy(graph);
}

/// What the values of a scene hold, as "slot maximum", in their order.
std::vector<std::string> told(const Scene& scene) {
  std::vector<std::string> found;
  for (const auto& value : scene.sink.all<format::TensorStats>()) {
    const int maximum = static_cast<int>(value.stats.max.as_f64());
    found.push_back(std::string(scene.definitions.text(value.slot)) + ' ' +
                    std::to_string(maximum));
  }
  found.erase(found.begin());  // of the preparation
  return found;
}

TEST_CASE("rule inputs: of a graph they are taken in front of it, if nothing in it writes before") {
  Scene scene({inputs_of_fill()});
  scene.await_preparation();
  const Captured graph(scene, 2);
  REQUIRE(cuMemsetD32(scene.memory, 0, 16) == CUDA_SUCCESS);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  REQUIRE(graph.launch() == CUDA_SUCCESS);
  scene.interceptor->collect();
  CHECK(told(scene) == std::vector<std::string>{"input:0 0", "arg:0 2", "input:0 2", "arg:0 2"});
  CHECK(lost(scene, LossReason::kGraphUnseen) == 2);  // what the second kernel is given, twice
}

TEST_CASE("rule inputs: behind a copy in a graph they are not known in front of it") {
  Scene scene({inputs_of_fill()});
  scene.await_preparation();
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32Async(scene.memory, 1, 16, stream) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
  REQUIRE(launch_graph(*scene.interceptor, exec, stream) == CUDA_SUCCESS);
  scene.interceptor->collect();
  CHECK(told(scene) == std::vector<std::string>{"arg:0 2"});
  CHECK(lost(scene, LossReason::kGraphUnseen) == 1);
  cuGraphExecDestroy(exec);
  cuGraphDestroy(graph);
}

}  // namespace
}  // namespace convtrace::cupti
