// A capture is the program's own: nothing of ours is in it, and nothing of ours ends it.

#include <chrono>
#include <thread>

#include "tests/fakecuda/crowd.h"
#include "tests/unit/cupti/cuda_scene.h"
#include "tests/unit/cupti/rules/told_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Streams;

size_t nodes_of(CUgraph graph) {
  size_t count = 0;
  REQUIRE(cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
  return count;
}

/// Captures one launch, while an observer asks for a tensor on another stream or the same.
void capture_beside(Scene& scene, CUstream capturing, CUstream asked) {
  CUgraph graph = nullptr;
  DeviceRequest request;
  request.event.device = {format::Device::Type::kCuda, 0};
  request.view =
      stats::dense_view(reinterpret_cast<const void*>(scene.memory), format::DType::kF32, 16);
  REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(scene.launch(scene.fill, capturing) == CUDA_SUCCESS);
  CHECK(scene.interceptor->submit({&request, 1}, reinterpret_cast<uint64_t>(asked)) !=
        SampleOutcome::kSampled);
  REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS);
  CHECK(nodes_of(graph) == 1);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("rules: what an observer asks for is not captured", "[captured]") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const Streams streams(1);
  capture_beside(scene, streams[0], streams[0]);
}

TEST_CASE("rules: the legacy stream is left alone during a capture", "[legacy]") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const Streams streams(1, CU_STREAM_DEFAULT);
  capture_beside(scene, streams[0], nullptr);
}

/// Submits a value whose result waits.
void submit_later(Scene& scene) {
  DeviceRequest request;
  request.event.device = {format::Device::Type::kCuda, 0};
  request.view =
      stats::dense_view(reinterpret_cast<const void*>(scene.memory), format::DType::kF32, 16);
  REQUIRE(scene.interceptor->submit({&request, 1}, 0, Patience::kPreparation, Results::kLater) ==
          SampleOutcome::kSampled);
}

/// @return how many results there are.
size_t results(Scene& scene) {
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  scene.interceptor->collect();
  return scene.sink.all<TensorStats>().size();
}

TEST_CASE("rules: results that wait go on waiting during a capture", "[wait]") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const size_t before = results(scene);
  submit_later(scene);
  const Streams streams(1);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  scene.interceptor->fold_waiting();
  REQUIRE(cuStreamEndCapture(streams[0], &graph) == CUDA_SUCCESS);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(results(scene) == before);
  scene.interceptor->fold_waiting();
  CHECK(results(scene) == before + 1);
}

TEST_CASE("rules: results that wait come when tracing ends", "[wait]") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const size_t before = results(scene);
  submit_later(scene);
  CHECK(results(scene) == before);
  scene.interceptor->stop(1'000'000'000);
  CHECK(scene.sink.all<TensorStats>().size() == before + 1);
}

TEST_CASE("rules: results that wait are counted when the program's context is lost", "[wait]") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const size_t before = results(scene);
  submit_later(scene);
  uint32_t count = 16;
  float value = 1;
  void* params[] = {&scene.memory, &value, &count};
  REQUIRE(launch_kernel(*scene.interceptor,
                        {scene.fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr}, false,
                        [](const void*) -> int { return CUDA_ERROR_ILLEGAL_ADDRESS; }) ==
          CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(results(scene) == before);
  uint64_t lost = 0;
  for (const auto& loss : scene.sink.all<format::Loss>())
    lost += loss.reason == format::LossReason::kGpuWorkOff ? loss.count : 0;
  CHECK(lost >= 1);
}

TEST_CASE("rules: results wait only in a program of one stream", "[wait]") {
  Scene scene({rule_for("fill*")});
  scene.await_preparation();
  const Streams streams(1);
  for (CUstream const stream : {CUstream{}, streams[0]})
    REQUIRE(scene.launch(scene.fill, stream) == CUDA_SUCCESS);
  const size_t before = results(scene);
  submit_later(scene);
  CHECK(results(scene) == before + 1);
}

TEST_CASE("rules: a context is prepared during a capture that any thread can break", "[helper]") {
  ToldScene scene;
  const Streams streams(1);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  scene.stats.prepare(scene.context);
  while (!scene.stats.find(scene.context)->is_settled())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(cuStreamEndCapture(streams[0], &graph) == CUDA_SUCCESS);
  CHECK(scene.stats.submit(scene.context, {}, nullptr) == SampleOutcome::kSampled);
  if (graph != nullptr) CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

}  // namespace
}  // namespace convtrace::cupti
