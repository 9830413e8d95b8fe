#include <memory>

#include "tests/fakecuda/hook.h"
#include "tests/support/same_stats.h"
#include "tests/unit/cupti/device_scene.h"

// Streams that have not come to our work yet, and what a driver refuses.

namespace convtrace::cupti {
namespace {

TEST_CASE("device_stats: a stream that stalls does not hold up the results of others") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  CUstream stalled = nullptr;
  REQUIRE(cuStreamCreate(&stalled, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  fakecuda::fakecuda_hold(stalled);
  REQUIRE(scene.submit({tensor.request()}, stalled) == SampleOutcome::kSampled);
  const std::vector<DeviceRequest> batch(64, tensor.request());
  size_t submitted = 0;
  for (; submitted < 2 * ResultRing::kSlots; submitted += batch.size()) {
    REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
    scene.collect();
  }
  const size_t out = scene.results().size();
  CHECK(out >= submitted - ResultRing::kSlots / 2);  // half of the ring waits for its turn
  fakecuda::fakecuda_release(stalled);
  CHECK(scene.results().size() == submitted + 1);
  CHECK(scene.collect() == 0);
}

TEST_CASE("device_stats: half of what a GPU takes in advance is the program's") {
  constexpr int kMost = 512;
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  fakecuda::fakecuda_hold(nullptr);
  for (int i = 0; i < kMost; ++i)
    REQUIRE(scene.submit({tensor.request()}) == SampleOutcome::kSampled);
  CHECK(scene.submit({tensor.request()}) == SampleOutcome::kRingFull);
  fakecuda::fakecuda_release(nullptr);
  CHECK(scene.submit({tensor.request()}) ==
        SampleOutcome::kSampled);  // before any result was taken
  CHECK(scene.results().size() == kMost + 1);
}

TEST_CASE("device_stats: the first launches of our kernels are not the program's to wait for") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  const uint64_t before = fakecuda::fakecuda_first_launches();
  REQUIRE(scene.submit({tensor.request()}) == SampleOutcome::kSampled);
  CHECK(fakecuda::fakecuda_first_launches() == before);
  CHECK(scene.results().size() == 1);
}

CUresult refuse_to_register(void*, size_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }

TEST_CASE("device_stats: where memory cannot be registered the driver's is used, till it may go") {
  auto scene = std::make_unique<DeviceScene>();
  scene->driver.mem_host_register = refuse_to_register;
  scene->stats.follow_context_ends(true);
  scene->prepare();
  const Twin tensor(64);
  const std::vector<DeviceRequest> batch = {tensor.request()};
  REQUIRE(scene->submit(batch) == SampleOutcome::kSampled);
  const auto results = scene->results();
  REQUIRE(results.size() == 1);
  CHECK(test::same_bits(results[0].stats, tensor.on_cpu(batch[0]).stats));
  fakecuda::fakecuda_hold(nullptr);
  REQUIRE(scene->submit(batch) == SampleOutcome::kSampled);
  SECTION("its end is told") {
    const auto held = scene->stats.find(scene->context);  // as a thread that is in there
    scene->stats.forget(scene->context);
    REQUIRE(cuCtxDestroy(scene->context) == CUDA_SUCCESS);
    uint64_t room = 10;
    CHECK(held->collect(scene->sink, room) == 0);  // the memory cannot be read any more
    REQUIRE(cuCtxCreate(&scene->context, nullptr, 0, 0) == CUDA_SUCCESS);
  }
  SECTION("nobody will tell of it any more") {
    scene->stats.follow_context_ends(false);
    CHECK(scene->submit(batch) == SampleOutcome::kGpuWorkOff);
  }
  CHECK(scene->collect() == 0);
  CHECK(scene->lost(format::LossReason::kContextEnded) == 1);
}

TEST_CASE("device_stats: where nobody tells of a context's end the driver's memory is not used") {
  DeviceScene scene;
  scene.driver.mem_host_register = refuse_to_register;
  scene.prepare();
  const Twin tensor(64);
  CHECK(scene.submit({tensor.request()}) == SampleOutcome::kGpuWorkOff);
}

}  // namespace
}  // namespace convtrace::cupti
