// Streams whose launches share nothing give the CPU's numbers, however the device mixes them.

#include <array>
#include <memory>
#include <utility>

#include "tests/fakecuda/crowd.h"
#include "tests/support/same_stats.h"
#include "tests/unit/cupti/rules/told_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Streams;

constexpr size_t kTensors = 4;

/// Tensors of several blocks each, with the CPU's numbers.
struct Tensors {
  Tensors() {
    for (uint64_t i = 0; i < kTensors; ++i) {
      twins[i] = std::make_unique<Twin>(200'000, i + 1);
      requests[i] = twins[i]->request();
      wanted[i] = twins[i]->on_cpu(requests[i]).stats;
    }
  }
  /// Of each result, that it is the number of its tensor.
  void check(const std::vector<TensorStats>& results) const {
    for (const TensorStats& result : results) {
      size_t of = 0;
      while (of < kTensors && twins[of]->address != result.address) ++of;
      REQUIRE(of < kTensors);
      REQUIRE(test::same_bits(result.stats, wanted[of]));
    }
  }
  std::array<std::unique_ptr<Twin>, kTensors> twins;
  std::array<DeviceRequest, kTensors> requests;
  std::array<decltype(stats::StatsResult::stats), kTensors> wanted;
};

std::vector<TensorStats> finish(DeviceScene& scene) {
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  return scene.results();
}

TEST_CASE("rules: a stream's launches have an arena to themselves", "[arena]") {
  ToldScene scene;
  scene.prepare();
  const Tensors tensors;
  const Streams streams(kTensors);
  constexpr size_t kRounds = 10;
  for (size_t i = 0; i < kRounds * kTensors; ++i)
    REQUIRE(scene.submit({tensors.requests[i % kTensors]}, streams[i % kTensors]) ==
            SampleOutcome::kSampled);
  const auto results = finish(scene);
  CHECK(results.size() == kRounds * kTensors);
  tensors.check(results);
}

TEST_CASE("rules: tiles stay in the log until they are folded, with others", "[log]") {
  ToldScene scene;
  scene.prepare();
  const Tensors tensors;
  constexpr size_t kRounds = 30;
  for (size_t i = 0; i < kRounds; ++i) {
    REQUIRE(scene.stats.submit(scene.context, {&tensors.requests[i % kTensors], 1}, nullptr, 0,
                               Results::kLater) == SampleOutcome::kSampled);
    if (i % 7 == 6) scene.stats.fold_waiting(scene.context);
  }
  scene.stats.fold_waiting(scene.context);
  const auto results = finish(scene);
  CHECK(results.size() == kRounds);
  tensors.check(results);
}

/// Submits once more while the first launch of an earlier batch of the same stream is under way.
struct Interrupter {
  explicit Interrupter(ToldScene& scene_in, const DeviceRequest& request_in)
      : scene(scene_in), request(request_in), real(scene.driver.launch_kernel) {
    one = this;
    scene.driver.launch_kernel = [](auto... params) {
      Interrupter& self = *one;
      if (!std::exchange(self.done, true))
        CHECK(self.scene.submit({self.request}) == SampleOutcome::kSampled);
      return self.real(params...);
    };
  }
  ~Interrupter() { scene.driver.launch_kernel = real; }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  static inline Interrupter* one = nullptr;
  ToldScene& scene;
  const DeviceRequest& request;
  decltype(DriverApi::launch_kernel) real;
  bool done = false;
};

TEST_CASE("rules: a batch that is not launched yet is folded by nobody", "[pending]") {
  ToldScene scene;
  scene.prepare();
  const Tensors tensors;
  {
    const Interrupter interrupter(scene, tensors.requests[1]);
    REQUIRE(scene.submit({tensors.requests[0]}) == SampleOutcome::kSampled);
  }
  const auto results = finish(scene);
  CHECK(results.size() == 2);
  tensors.check(results);
}

TEST_CASE("rules: a handle that comes again is another stream", "[handle]") {
  ToldScene scene;
  scene.prepare();
  const Tensors tensors;
  const Streams others(1);  // with connections for all
  constexpr size_t kRounds = 120;
  for (size_t i = 0; i < kRounds; ++i) {
    CUstream stream = nullptr;
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    if (scene.submit({tensors.requests[i % kTensors]}, stream) != SampleOutcome::kSampled) {
      REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);  // all arenas are taken
      scene.collect();
    }
    REQUIRE(cuStreamDestroy(stream) == CUDA_SUCCESS);
  }
  tensors.check(finish(scene));
}

TEST_CASE("rules: an arena is another stream's when all its results are out", "[many]") {
  ToldScene scene;
  scene.prepare();
  const Tensors tensors;
  const Streams streams(24);
  for (size_t i = 0; i < 3 * streams.all.size(); ++i) {
    const SampleOutcome outcome =
        scene.submit({tensors.requests[i % kTensors]}, streams[i % streams.all.size()]);
    if (outcome != SampleOutcome::kSampled) CHECK(outcome == SampleOutcome::kRingFull);
    if (i % 10 == 0) scene.collect();
  }
  tensors.check(finish(scene));
}

}  // namespace
}  // namespace convtrace::cupti
