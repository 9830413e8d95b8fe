#include "cupti/device_stats.h"

#include <cuda.h>

#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "cupti/stats/compute.h"
#include "tests/support/catch.h"
#include "tests/unit/cupti/collecting_sink.h"

// The kernel is the host replay that the fake driver runs; everything around it is real.

namespace convtrace::cupti {
namespace {

using format::Capture;
using format::DType;
using format::NotSampled;
using format::TensorStats;

constexpr uint64_t kSecondNs = 1'000'000'000;

DriverApi load_fake() {
  DriverApi api;
  REQUIRE(load_driver_api(api).ok());
  return api;
}

/// A tensor in device memory, with the same bytes on the host.
struct Twin {
  explicit Twin(uint64_t bytes, uint64_t seed = 1) : host(bytes) {
    std::mt19937_64 random(seed);
    for (auto& byte : host) byte = static_cast<uint8_t>(random());
    REQUIRE(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoD(address, host.data(), bytes) == CUDA_SUCCESS);
  }
  ~Twin() { cuMemFree(address); }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  [[nodiscard]] DeviceRequest request(stats::TensorView view,
                                      Capture capture = Capture::kStats) const {
    DeviceRequest request;
    request.view = view;
    request.view.data = reinterpret_cast<const void*>(address);
    request.event.dtype = view.dtype;
    request.event.capture = capture;
    request.event.address = address;
    request.event.has_shape = true;
    return request;
  }
  [[nodiscard]] DeviceRequest request(DType dtype = DType::kF32,
                                      Capture capture = Capture::kStats) const {
    return request(stats::dense_view(nullptr, dtype, host.size() / format::element_bytes(dtype)),
                   capture);
  }
  [[nodiscard]] stats::StatsResult on_cpu(const DeviceRequest& request) const {
    stats::TensorView view = request.view;
    view.data = host.data();
    stats::StatsResult result;
    REQUIRE(stats::compute_on_cpu(view, request.event.capture, result).ok());
    return result;
  }

  std::vector<uint8_t> host;
  CUdeviceptr address = 0;
};

struct Scene {
  explicit Scene(bool keep_samples = true)
      : driver(load_fake()), stats(driver, sink, keep_samples) {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  }
  ~Scene() {
    stats.forget(context);
    cuCtxDestroy(context);
  }

  void prepare() {
    stats.prepare(context);
    stats.await(context, 10 * kSecondNs);
  }
  NotSampled submit(const std::vector<DeviceRequest>& batch, CUstream stream = nullptr) {
    return stats.submit(context, batch, stream);
  }
  /// All that is finished. @return how many are still under way.
  uint64_t collect() {
    uint64_t room = UINT64_MAX;
    return stats.collect(room);
  }
  /// @return what has come out so far.
  std::vector<TensorStats> results() {
    collect();
    return sink.all<TensorStats>();
  }
  uint64_t lost(format::LossReason reason) {
    uint64_t count = 0;
    for (const auto& loss : sink.all<format::Loss>())
      if (loss.reason == reason) count += loss.count;
    return count;
  }

  CollectingSink sink;
  DriverApi driver;
  DeviceStats stats;
  CUcontext context = nullptr;
};

void require_same(const TensorStats& got, const stats::StatsResult& want) {
  REQUIRE(std::memcmp(&got.stats, &want.stats, sizeof want.stats) == 0);
  REQUIRE(std::ranges::equal(got.range_hashes, std::span(want.range_hashes, want.range_count)));
  REQUIRE(std::ranges::equal(got.samples, std::span(want.samples, want.sample_bytes)));
}

TEST_CASE("device_stats: a batch comes out in order, equal to the CPU's numbers to the last bit") {
  Scene scene;
  scene.prepare();
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF64, DType::kI64,
                              DType::kF16, DType::kBool, DType::kC64};
  std::vector<std::unique_ptr<Twin>> tensors;
  std::vector<DeviceRequest> batch;
  for (uint64_t i = 0; i < 200; ++i) {  // more than one launch takes
    tensors.push_back(std::make_unique<Twin>(16 * (1 + i * i % 5000), i));
    batch.push_back(tensors.back()->request(kTypes[i % std::size(kTypes)],
                                            i % 3 == 0 ? Capture::kHash : Capture::kStats));
  }
  REQUIRE(scene.submit(batch) == NotSampled::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    CAPTURE(i);
    CHECK(results[i].address == tensors[i]->address);
    require_same(results[i], tensors[i]->on_cpu(batch[i]));
  }
}

TEST_CASE("device_stats: a tensor of many tiles, and views that are no plain memory") {
  Scene scene;
  scene.prepare();
  const Twin large(5'000'000);
  const Twin table(64 * 48 * sizeof(float));
  stats::TensorView transposed{.dtype = DType::kF32, .rank = 2};
  transposed.shape[0] = 48;
  transposed.shape[1] = 64;
  transposed.strides[0] = 1;
  transposed.strides[1] = 48;
  stats::TensorView empty{.dtype = DType::kF32, .rank = 2};
  empty.shape[0] = 3;
  const std::vector<DeviceRequest> batch = {large.request(DType::kBF16), table.request(transposed),
                                            table.request(empty), table.request()};
  REQUIRE(scene.submit(batch) == NotSampled::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 4);
  require_same(results[0], large.on_cpu(batch[0]));
  CHECK(results[0].range_hashes.size() > 1);
  for (size_t i = 1; i < 4; ++i) require_same(results[i], table.on_cpu(batch[i]));
  CHECK(results[2].stats.count == 0);
  CHECK(results[1].stats.hash != results[3].stats.hash);  // another order of the same elements
  CHECK(std::ranges::equal(results[1].shape, std::array<uint64_t, 2>{48, 64}));
}

TEST_CASE("device_stats: raw values are left out on request") {
  Scene scene(false);
  scene.prepare();
  const Twin tensor(64);
  REQUIRE(scene.submit({tensor.request()}) == NotSampled::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].samples.empty());
  CHECK(results[0].stats.count == 16);
}

TEST_CASE(
    "device_stats: a view that cannot be walked is counted, the others of its batch are not") {
  Scene scene;
  scene.prepare();
  const Twin tensor(64);
  DeviceRequest broken = tensor.request();
  broken.view.rank = format::kMaxDims + 1;
  REQUIRE(scene.submit({broken, tensor.request()}) == NotSampled::kSampled);
  CHECK(scene.results().size() == 1);
  CHECK(scene.lost(format::LossReason::kTensorKind) == 1);
}

TEST_CASE("device_stats: before a context is prepared nothing is queued, and it says why") {
  Scene scene;
  const Twin tensor(64);
  CHECK(scene.submit({tensor.request()}) == NotSampled::kNotReady);
  scene.prepare();
  CHECK(scene.submit({tensor.request()}) == NotSampled::kSampled);
  scene.stats.forget(scene.context);
  CHECK(scene.submit({tensor.request()}) == NotSampled::kNotReady);
  CHECK(scene.results().size() == 1);
}

TEST_CASE("device_stats: a full ring refuses whole batches until results are taken") {
  Scene scene;
  scene.prepare();
  const Twin tensor(64);
  const std::vector<DeviceRequest> many(ResultRing::kSlots - 1, tensor.request());
  const std::vector<DeviceRequest> two(2, tensor.request());
  REQUIRE(scene.submit(many) == NotSampled::kSampled);
  CHECK(scene.submit(two) == NotSampled::kRingFull);
  REQUIRE(scene.results().size() == many.size());
  CHECK(scene.submit(two) == NotSampled::kSampled);
  CHECK(scene.results().size() == many.size() + 2);
}

TEST_CASE("device_stats: streams beyond the arenas wait for results of others to be taken") {
  Scene scene;
  scene.prepare();
  const Twin tensor(64);
  std::vector<CUstream> streams(20);
  for (CUstream& stream : streams) REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  size_t taken = 0;
  while (taken < streams.size() &&
         scene.submit({tensor.request()}, streams[taken]) == NotSampled::kSampled)
    ++taken;
  CHECK(taken == 16);
  CHECK(scene.submit({tensor.request()}, streams[0]) == NotSampled::kSampled);
  CHECK(scene.results().size() == 17);
  CHECK(scene.submit({tensor.request()}, streams[19]) == NotSampled::kSampled);
  CHECK(scene.results().size() == 18);
}

TEST_CASE("device_stats: no more results come out at once than were asked for") {
  Scene scene;
  scene.prepare();
  const Twin tensor(64);
  REQUIRE(scene.submit(std::vector<DeviceRequest>(5, tensor.request())) == NotSampled::kSampled);
  uint64_t room = 3;
  CHECK(scene.stats.collect(room) == 2);
  CHECK(room == 0);
  CHECK(scene.sink.all<TensorStats>().size() == 3);
  room = 3;
  CHECK(scene.stats.collect(room) == 0);
  CHECK(room == 1);
  CHECK(scene.sink.all<TensorStats>().size() == 5);
}

TEST_CASE("device_stats: what a context had not finished when it ended is lost and counted") {
  Scene scene;
  scene.prepare();
  const Twin tensor(64);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  // Work on a capturing stream is not done: as on a device that is still busy.
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(scene.submit({tensor.request(), tensor.request()}, stream) == NotSampled::kSampled);
  CHECK(scene.collect() == 2);
  scene.stats.forget(scene.context);
  CHECK(scene.results().empty());
  CHECK(scene.lost(format::LossReason::kContextEnded) == 2);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("device_stats: threads on streams of their own, while another takes the results") {
  constexpr int kThreads = 4;
  constexpr int kBatches = 100;
  Scene scene;
  scene.prepare();
  const Twin tensor(40'000);
  const stats::StatsResult want = tensor.on_cpu(tensor.request());
  std::atomic<int> submitted{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      CUstream stream = nullptr;
      cuCtxSetCurrent(scene.context);
      cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      const std::vector<DeviceRequest> batch(3, tensor.request());
      for (int i = 0; i < kBatches; ++i)
        if (scene.submit(batch, stream) == NotSampled::kSampled) submitted += 3;
    });
  }
  std::thread taker([&] {
    while (!done) scene.collect();
  });
  for (auto& thread : threads) thread.join();
  done = true;
  taker.join();
  const auto results = scene.results();
  CHECK(submitted == kThreads * kBatches * 3);
  REQUIRE(results.size() == static_cast<size_t>(submitted));
  for (const TensorStats& result : results) require_same(result, want);
}

}  // namespace
}  // namespace convtrace::cupti
