// Contexts that end while the device is still at our work.

#include <cstdlib>

#include "tests/fakecuda/crowd.h"
#include "tests/unit/cupti/rules/told_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Streams;

/// Ends the scene's context as a subscriber is told of it, and goes on in a new one.
void end_context(DeviceScene& scene) {
  scene.stats.forget(scene.context);
  REQUIRE(cuCtxDestroy(scene.context) == CUDA_SUCCESS);
  scene.stats.forgotten_ended();
  scene.collect();
  REQUIRE(cuCtxCreate(&scene.context, nullptr, 0, 0) == CUDA_SUCCESS);
}

/// What comes out before the end is right, and all of the rest is counted.
void end_with_work(DeviceScene& scene) {
  uint64_t submitted = 0;
  for (int round = 0; round < 8; ++round) {
    const size_t lost_before = scene.lost(format::LossReason::kContextEnded);
    const size_t out_before = scene.results().size();
    scene.prepare();
    const Streams streams(3);
    const Twin tensor(64);
    for (size_t i = 0; i < 12; ++i)
      submitted +=
          scene.submit({tensor.request()}, streams[i % 3]) == SampleOutcome::kSampled ? 1 : 0;
    end_context(scene);
    CHECK(scene.results().size() - out_before + scene.lost(format::LossReason::kContextEnded) -
              lost_before ==
          12);
  }
  CHECK(submitted == 8 * 12);
}

TEST_CASE("rules: a device that still writes has where to", "[writes]") {
  ToldScene scene;
  end_with_work(scene);
}

TEST_CASE("rules: the driver's memory is not read behind its context's end", "[borrowed]") {
  setenv("FAKECUDA_REGISTERED_MEMORY", "4096", 1);
  ToldScene scene;
  end_with_work(scene);
  unsetenv("FAKECUDA_REGISTERED_MEMORY");
}

}  // namespace
}  // namespace convtrace::cupti
