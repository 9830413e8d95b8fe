// A launch of the program waits for nothing of ours, and work that waits for the host stays there.

#include <unistd.h>

#include <atomic>

#include "tests/fakecuda/crowd.h"
#include "tests/unit/cupti/cuda_scene.h"
#include "tests/unit/cupti/rules/told_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Gatekeeper;
using fakecuda::Streams;

/// Ends the process where a call does not return.
struct Alarm {
  Alarm() { alarm(20); }
  ~Alarm() { alarm(0); }
};

TEST_CASE("rules: the first value does not wait for the device", "[first]") {
  Scene scene({rule_for("fill*")});
  REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
  // An observer that asks for nothing: prepared, and no kernel of ours has run for the program.
  DeviceRequest nothing;
  nothing.event.device = {format::Device::Type::kCuda, 0};
  nothing.view.dtype = format::DType::kF32;
  nothing.view.rank = 1;
  REQUIRE(submit_when_ready(*scene.interceptor, {&nothing, 1}) == SampleOutcome::kSampled);
  const Streams streams(2);
  Gatekeeper gatekeeper;
  gatekeeper.stall(streams[0]);
  REQUIRE(scene.launch(scene.fill, streams[1]) == CUDA_SUCCESS);
  Gatekeeper::let_go();
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("rules: half of what the device takes in advance is the program's", "[room]") {
  const Alarm alarm;
  ToldScene scene;
  scene.prepare();
  const Twin tensor(64);
  const Streams streams(1);
  Gatekeeper gatekeeper;
  gatekeeper.stall(streams[0]);
  int taken = 0;
  for (int i = 0; i < 1000; ++i)
    taken += scene.submit({tensor.request()}, streams[0]) == SampleOutcome::kSampled ? 1 : 0;
  for (int i = 0; i < 500; ++i) gatekeeper.stall(streams[0]);
  Gatekeeper::let_go();
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(taken == 256);  // of two launches each
  CHECK(scene.results().size() == 256);
}

TEST_CASE("rules: after an error of ours there is no more work of ours", "[error]") {
  static std::atomic<int> calls{0};
  ToldScene scene;
  scene.prepare();
  const Twin tensor(64);
  scene.driver.launch_kernel = [](auto...) { return ++calls, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; };
  for (int i = 0; i < 5; ++i) CHECK(scene.submit({tensor.request()}) == SampleOutcome::kGpuWorkOff);
  CHECK(calls == 1);
}

/// Two kernels of which each waits until the other runs.
std::atomic<unsigned> arrived{0};
template <unsigned kOwn>
void meet(const fakecuda_launch* launch) {
  *launch->unfinished = (arrived |= kOwn) == 3 ? 0 : 1;
}
constexpr fakecuda_kernel kMeeting[] = {{"one_shot_all_reduce_a", meet<1>, 3, kFillParams},
                                        {"one_shot_all_reduce_b", meet<2>, 3, kFillParams}};
constexpr fakecuda_image kMeetingImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 2, kMeeting};

TEST_CASE("rules: kernels that wait for each other meet", "[meeting]") {
  Scene scene({rule_for("*")});
  scene.await_preparation();
  const Streams streams(2);
  CUmodule module = nullptr;
  CUfunction kernels[2] = {};
  REQUIRE(cuModuleLoadData(&module, &kMeetingImage) == CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(cuModuleGetFunction(&kernels[i], module, kMeeting[i].name) == CUDA_SUCCESS);
    arrived = 3;
    REQUIRE(scene.launch(kernels[i]) == CUDA_SUCCESS);  // each has been loaded
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  }
  fakecuda::fakecuda_connections(1);
  for (int round = 0; round < 5; ++round) {
    arrived = 0;
    for (int i = 0; i < 2; ++i) REQUIRE(scene.launch(kernels[i], streams[i]) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  }
  REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
}

}  // namespace
}  // namespace convtrace::cupti
