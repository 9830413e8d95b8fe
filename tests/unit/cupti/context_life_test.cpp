// Contexts that end, and what comes after them.

#include <cstdio>
#include <cstdlib>

#include "tests/unit/cupti/cuda_scene.h"
#include "tests/unit/cupti/device_scene.h"

namespace convtrace::cupti {
namespace {

/// Address space of this process.
uint64_t mapped_bytes() {
  unsigned long pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  REQUIRE(file != nullptr);
  REQUIRE(fscanf(file, "%lu", &pages) == 1);
  fclose(file);
  return pages * uint64_t{4096};
}

/// A context with values in it, from its creation to its end.
void live_and_die(Scene& scene) {
  CUcontext other = nullptr;
  REQUIRE(cuCtxCreate(&other, nullptr, 0, 0) == CUDA_SUCCESS);
  const size_t before = scene.sink.all<format::TensorStats>().size();
  scene.await_preparation();
  CHECK(scene.sink.all<format::TensorStats>().size() == before + 1);
  REQUIRE(cuCtxDestroy(other) == CUDA_SUCCESS);
}

TEST_CASE("context: its end gives back the memory that its results came through") {
  Scene scene;
  live_and_die(scene);  // what is got once
  const uint64_t before = mapped_bytes();
  constexpr int kContexts = 20;
  for (int i = 0; i < kContexts; ++i) live_and_die(scene);
  constexpr uint64_t kRing = 10 << 20;
  CHECK(mapped_bytes() < before + kContexts * kRing / 2);
}

std::atomic<bool> is_loading{false};
std::atomic<int> calls_behind{0};

TEST_CASE("context: one that ends while it is prepared is prepared no further") {
  DeviceScene scene;
  scene.driver.module_load_data = [](CUmodule* module, const void* image) {
    is_loading = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // forget() is waiting by then
    return cuModuleLoadData(module, image);
  };
  scene.driver.mem_host_register = [](void*, size_t, unsigned) {
    ++calls_behind;
    return CUDA_ERROR_UNKNOWN;
  };
  scene.stats.prepare(scene.context);
  while (!is_loading) std::this_thread::yield();
  scene.stats.forget(scene.context);
  CHECK(calls_behind == 0);
  CHECK(scene.sink.all<format::Diagnostic>().empty());
}

std::atomic<int> refusals_to_come{0};
std::atomic<CUresult> refusal{CUDA_SUCCESS};

/// A context in which the driver refuses to load the kernels `count` times.
struct RefusedScene : DeviceScene {
  RefusedScene(int count, CUresult result) {
    refusals_to_come = count;
    refusal = result;
    driver.module_load_data = [](CUmodule* module, const void* image) {
      return refusals_to_come.fetch_sub(1) > 0 ? refusal.load() : cuModuleLoadData(module, image);
    };
  }
  SampleOutcome use() {
    const std::vector<DeviceRequest> batch = {tensor.request()};
    return stats.submit(context, batch, nullptr, 10 * kSecondNs);
  }
  /// A use that finds a refusal that has just come begins again, so it may meet two of them.
  SampleOutcome use_until_decided(int most_not_ready) {
    SampleOutcome outcome = use();
    for (int i = 0; i < most_not_ready && outcome == SampleOutcome::kNotReady; ++i) outcome = use();
    return outcome;
  }
  const Twin tensor{64};
};

TEST_CASE("context: a refusal that may pass is borne five times, and each use tries again") {
  const auto result = GENERATE(CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_NOT_INITIALIZED);
  const int count = GENERATE(1, 5);
  CAPTURE(result, count);
  RefusedScene scene(count, result);
  CHECK(scene.use_until_decided(count) == SampleOutcome::kSampled);
  CHECK(scene.results().size() == 1);
  CHECK(scene.sink.all<format::Diagnostic>().empty());
}

TEST_CASE("context: after six refusals nothing is tried any more, and the line says how many") {
  RefusedScene scene(6, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(scene.use_until_decided(5) == SampleOutcome::kGpuWorkOff);
  CHECK(scene.use() == SampleOutcome::kGpuWorkOff);
  CHECK(refusals_to_come == 0);
  scene.stats.stop(10 * kSecondNs);  // the helper says why behind its decision
  const auto said = scene.sink.all<format::Diagnostic>();
  REQUIRE(said.size() == 1);
  CHECK(said[0].message.find("CT-1408") == 0);
  CHECK(said[0].message.find(" 6 times") != std::string_view::npos);
}

TEST_CASE("context: an error that does not pass ends its preparation at once") {
  RefusedScene scene(1, CUDA_ERROR_INVALID_IMAGE);
  CHECK(scene.use() == SampleOutcome::kGpuWorkOff);
  CHECK(scene.use() == SampleOutcome::kGpuWorkOff);
  scene.stats.stop(10 * kSecondNs);  // as above
  CHECK(scene.sink.all<format::Diagnostic>().size() == 1);
}

TEST_CASE("context: one that ends while it was refused is not prepared again") {
  // The first refusal may come before the use, which then begins again.
  RefusedScene scene(2, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(scene.use() == SampleOutcome::kNotReady);
  const auto known = scene.stats.find(scene.context);
  scene.stats.forget(scene.context);
  CHECK(!known->begin_again());
  CHECK(scene.stats.submit(scene.context, {}, nullptr) == SampleOutcome::kNotReady);
}

TEST_CASE("context: without CUPTI a handle that comes again is another context") {
  setenv("FAKECUDA_CUPTI_RESULT", "999", 1);
  setenv("FAKECUDA_CONTEXTS_COME_AGAIN", "1", 1);
  Scene scene;
  unsetenv("FAKECUDA_CUPTI_RESULT");
  live_and_die(scene);
  const uint64_t before = mapped_bytes();
  for (int i = 0; i < 8; ++i) live_and_die(scene);
  CHECK(scene.sink.all<format::Loss>().empty());
  CHECK(scene.sink.all<format::Diagnostic>().size() == 1);  // of CUPTI
  CHECK(mapped_bytes() < before + (uint64_t{40} << 20));    // one or two of the rings, not eight
  unsetenv("FAKECUDA_CONTEXTS_COME_AGAIN");
}

}  // namespace
}  // namespace convtrace::cupti
