// Values of what a kernel is given, in front of its launch: over the fake driver.

#include "tests/unit/cupti/graph_scene.h"

namespace convtrace::cupti {
namespace {

using format::NotSampled;

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
  CHECK(values[2].samples.size() == 8 * sizeof(float));
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
  CHECK(scene.sink.all<format::Launch>().back().sampled == NotSampled::kSampled);
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
  CHECK(scene.sink.all<format::Launch>().back().sampled == NotSampled::kCapturing);
  CHECK(lost(scene, format::LossReason::kStreamUnsafe) == 1);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_CAPTURE_ENDED, nullptr, capturing, nullptr);
  cuGraphDestroy(graph);
}

}  // namespace
}  // namespace convtrace::cupti
