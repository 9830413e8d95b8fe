#include "cupti/values/device_stats.h"

#include <array>
#include <cstring>
#include <thread>

#include "cupti/memory/quarantine.h"
#include "tests/support/same_stats.h"
#include "tests/unit/cupti/device_scene.h"
#include "tests/unit/cupti/stats/named_views.h"

// The kernel is the host replay that the fake driver runs; everything around it is real.

namespace convtrace::cupti {
namespace {

void require_same(const TensorStats& got, const stats::StatsResult& want) {
  REQUIRE(test::same_bits(got.stats, want.stats));
  REQUIRE(std::ranges::equal(got.range_hashes, std::span(want.range_hashes, want.range_count)));
  REQUIRE(std::ranges::equal(got.samples, std::span(want.samples, want.sample_bytes)));
}

TEST_CASE("device_stats: a batch comes out in order, equal to the CPU's numbers to the last bit") {
  DeviceScene scene;
  scene.prepare();
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16,     DType::kF64,
                              DType::kI64, DType::kF16,      DType::kBool,
                              DType::kC64, DType::kF4E2M1FN, DType::kF8E8M0FNU};
  std::vector<std::unique_ptr<Twin>> tensors;
  std::vector<DeviceRequest> batch;
  for (uint64_t i = 0; i < 200; ++i) {  // more than the kernel's parameter names
    tensors.push_back(std::make_unique<Twin>(16 * (1 + i * i % 5000), i));
    batch.push_back(tensors.back()->request(kTypes[i % std::size(kTypes)],
                                            i % 3 == 0 ? Capture::kHash : Capture::kStats));
  }
  REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    CAPTURE(i);
    CHECK(results[i].address == tensors[i]->address);
    require_same(results[i], tensors[i]->on_cpu(batch[i]));
  }
}

TEST_CASE("device_stats: a tensor of many tiles, and views that are no plain memory") {
  DeviceScene scene;
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
  REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 4);
  require_same(results[0], large.on_cpu(batch[0]));
  CHECK(results[0].range_hashes.size() > 1);
  for (size_t i = 1; i < 4; ++i) require_same(results[i], table.on_cpu(batch[i]));
  CHECK(results[2].stats.count == 0);
  CHECK(results[1].stats.hash != results[3].stats.hash);  // another order of the same elements
  CHECK(std::ranges::equal(results[1].shape, std::array<uint64_t, 2>{48, 64}));
}

TEST_CASE("device_stats: a view has the numbers of its dense copy on the CPU") {
  const auto view = GENERATE(from_range(stats::test::named_views()));
  CAPTURE(view.name);
  DeviceScene scene;
  scene.prepare();
  const Twin buffer(stats::test::kViewBufferBytes);
  const stats::TensorView on_device = view.at(reinterpret_cast<const void*>(buffer.address));
  DeviceRequest request = buffer.request(on_device);
  request.view.data = on_device.data;
  const std::vector<uint8_t> copy = view.copy_of(buffer.host.data());
  stats::StatsResult want;
  REQUIRE(stats::compute_on_cpu(
              stats::dense_view(copy.data(), view.dtype, stats::element_count(on_device)),
              Capture::kStats, want)
              .ok());
  REQUIRE(scene.submit({request}) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 1);
  require_same(results[0], want);
}

TEST_CASE("device_stats: a hundred launches over a batch give the same bits") {
  DeviceScene scene;
  scene.prepare();
  const Twin large(300'000, 1), small(1000, 2), odd(4097, 3);
  const std::vector<DeviceRequest> batch = {large.request(), small.request(DType::kF64),
                                            odd.request(DType::kBF16)};
  for (int i = 0; i < 100; ++i) REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 300);
  require_same(results[0], large.on_cpu(batch[0]));
  for (size_t i = 3; i < results.size(); ++i)
    CHECK(test::same_bits(results[i].stats, results[i % 3].stats));
}

TEST_CASE("device_stats: raw values are left out on request") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  DeviceRequest request = tensor.request();
  request.samples = 0;
  REQUIRE(scene.submit({request}) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].samples.empty());
  CHECK(results[0].stats.count == 16);
}

/// The first elements as the host has them, in logical order.
std::vector<std::byte> first_of(const Twin& tensor, const DeviceRequest& request) {
  stats::TensorView view = request.view;
  view.data = tensor.host.data();
  stats::Layout layout;
  REQUIRE(stats::flatten(view, layout).ok());
  const uint64_t values = request.samples * format::values_in_element(view.dtype);
  const uint64_t count = std::min(layout.values(), values);
  std::vector<std::byte> bytes(count * format::element_bytes(layout.dtype));
  stats::gather_values(layout, 0, count, bytes.data());
  return bytes;
}

TEST_CASE("device_stats: of an op's floats poison is counted among the samples") {
  DeviceScene scene;
  scene.prepare();
  const uint32_t pattern = kFreshPattern;
  const auto [type, expected] = GENERATE(table<DType, uint64_t>(
      {{DType::kF32, 4}, {DType::kBF16, 4}, {DType::kF16, 4}, {DType::kF64, 4}, {DType::kI32, 0}}));
  CAPTURE(type);
  std::vector<uint32_t> half(1024, pattern);
  std::fill(half.begin() + 512, half.end(), 0x3F803F80u);
  Twin tensor(half.size() * sizeof pattern);
  REQUIRE(cuMemcpyHtoD(tensor.address, half.data(), half.size() * sizeof pattern) == CUDA_SUCCESS);
  DeviceRequest of_op = tensor.request(type), of_module = of_op, hash_only = of_op;
  of_op.event.op = hash_only.event.op = {1};
  hash_only.samples = 0;
  REQUIRE(scene.submit({of_op, of_module, hash_only}) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == 3);
  CHECK(results[0].poisoned == expected);
  CHECK(results[1].poisoned == 0);
  CHECK(results[2].poisoned == 0);
}

TEST_CASE("device_stats: first elements come in logical order, as many as each asks for") {
  DeviceScene scene(4096);
  scene.prepare();
  const Twin table(64 * 48 * sizeof(float));
  stats::TensorView backwards{.dtype = DType::kF32, .rank = 2};
  backwards.shape[0] = 48, backwards.shape[1] = 64;
  backwards.strides[0] = -64, backwards.strides[1] = 1;
  std::vector<DeviceRequest> batch = {table.request(backwards),
                                      table.request(DType::kBF16),
                                      table.request(DType::kC128),
                                      table.request(DType::kU8),
                                      table.request(DType::kF32, Capture::kHash),
                                      table.request(),
                                      table.request(DType::kF4E2M1FN)};
  batch[0].view.data = reinterpret_cast<const void*>(table.address + 47 * 64 * sizeof(float));
  for (DeviceRequest& request : batch) request.samples = 100;
  batch[3].samples = 4096;
  batch[5].samples = 8;
  REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == batch.size());
  const float* const last_row = reinterpret_cast<const float*>(table.host.data()) + 47 * 64;
  CHECK(std::memcmp(results[0].leading.data(), last_row, 64 * sizeof(float)) == 0);
  CHECK(results[0].leading.size() == 100 * sizeof(float));
  for (size_t i = 1; i < 4; ++i) {
    CAPTURE(i);
    CHECK(std::ranges::equal(results[i].leading, first_of(table, batch[i])));
    CHECK(results[i].samples.size() > 0);
  }
  REQUIRE(results[6].leading.size() == 200);  // of f4e2m1fn the values, one a byte
  for (size_t i = 0; i < 200; ++i) {
    const std::byte pair{table.host[i / 2]};
    CHECK(results[6].leading[i] == (i % 2 == 0 ? pair & std::byte{15} : pair >> 4));
  }
  CHECK(results[4].leading.empty());  // a hash has no samples
  CHECK(results[5].leading.empty());  // the eight say it all
}

TEST_CASE("device_stats: a tensor of fewer elements than are asked for is told whole") {
  DeviceScene scene(50);
  scene.prepare();
  const Twin tensor(20 * sizeof(double));
  DeviceRequest request = tensor.request(DType::kF64);
  request.samples = 50;
  REQUIRE(scene.submit({request}) == SampleOutcome::kSampled);
  const auto results = scene.results();
  CHECK(std::ranges::equal(results[0].leading, std::as_bytes(std::span(tensor.host))));
}

TEST_CASE("device_stats: where f64 is slow f32 is summed in pairs of f32, and it is said") {
  setenv("FAKECUDA_F64_RATIO", "64", 1);
  DeviceScene scene;
  scene.prepare();
  unsetenv("FAKECUDA_F64_RATIO");
  std::vector<std::unique_ptr<Twin>> tensors;
  std::vector<DeviceRequest> batch;
  for (const DType dtype : {DType::kF32, DType::kC64, DType::kBF16, DType::kF8E4M3FN, DType::kF64,
                            DType::kI32, DType::kU8}) {
    tensors.push_back(std::make_unique<Twin>(40'000, batch.size()));
    batch.push_back(tensors.back()->request(dtype));
  }
  REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    CAPTURE(i);
    const stats::StatsResult want = tensors[i]->on_cpu(batch[i]);
    const bool narrow = i < 2;
    CHECK(results[i].variant == (narrow ? 1 : want.variant));
    CHECK(results[i].stats.hash == want.stats.hash);
    CHECK(results[i].stats.saturated == want.stats.saturated);
    CHECK(results[i].stats.std == Approx(want.stats.std).epsilon(1e-9));
    if (!narrow) require_same(results[i], want);
  }
}

TEST_CASE(
    "device_stats: a view that cannot be walked is counted, the others of its batch are not") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  DeviceRequest broken = tensor.request();
  broken.view.rank = format::kMaxDims + 1;
  REQUIRE(scene.submit({broken, tensor.request()}) == SampleOutcome::kSampled);
  CHECK(scene.results().size() == 1);
  CHECK(scene.lost(format::LossReason::kTensorKind) == 1);
}

TEST_CASE("device_stats: before a context is prepared nothing is queued, and it says why") {
  DeviceScene scene;
  const Twin tensor(64);
  CHECK(scene.submit({tensor.request()}) == SampleOutcome::kNotReady);
  scene.prepare();
  CHECK(scene.submit({tensor.request()}) == SampleOutcome::kSampled);
  scene.stats.forget(scene.context);
  CHECK(scene.submit({tensor.request()}) == SampleOutcome::kNotReady);
  CHECK(scene.results().size() == 1);
}

TEST_CASE("device_stats: a full ring refuses whole batches until results are taken") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  const std::vector<DeviceRequest> many(ResultRing::kSlots - 1, tensor.request());
  const std::vector<DeviceRequest> two(2, tensor.request());
  REQUIRE(scene.submit(many) == SampleOutcome::kSampled);
  CHECK(scene.submit(two) == SampleOutcome::kRingFull);
  REQUIRE(scene.results().size() == many.size());
  CHECK(scene.submit(two) == SampleOutcome::kSampled);
  CHECK(scene.results().size() == many.size() + 2);
}

TEST_CASE("device_stats: streams beyond the arenas wait for results of others to be taken") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  std::vector<CUstream> streams(20);
  for (CUstream& stream : streams) REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  size_t taken = 0;
  while (taken < streams.size() &&
         scene.submit({tensor.request()}, streams[taken]) == SampleOutcome::kSampled)
    ++taken;
  CHECK(taken == 15);  // one more is the default stream's
  CHECK(scene.submit({tensor.request()}, streams[0]) == SampleOutcome::kSampled);
  CHECK(scene.results().size() == 16);
  CHECK(scene.submit({tensor.request()}, streams[19]) == SampleOutcome::kSampled);
  CHECK(scene.submit({tensor.request()}) == SampleOutcome::kSampled);
  CHECK(scene.results().size() == 18);
}

TEST_CASE("device_stats: no more results come out at once than were asked for") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  REQUIRE(scene.submit(std::vector<DeviceRequest>(5, tensor.request())) == SampleOutcome::kSampled);
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
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  // Work on a capturing stream is not done: as on a device that is still busy.
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(scene.submit({tensor.request(), tensor.request()}, stream) == SampleOutcome::kSampled);
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
  DeviceScene scene;
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
        if (scene.submit(batch, stream) == SampleOutcome::kSampled) submitted += 3;
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

TEST_CASE(
    "device_stats: threads that launch lists on one stream get the numbers of their tensors") {
  DeviceScene scene;
  scene.prepare();
  const Twin small(400, 1), large(40'000, 2);
  constexpr size_t kTensors = stats::FewBatch::kMaxTensors + 40, kBatches = 6;
  std::atomic<size_t> submitted{0};
  std::vector<std::thread> threads;
  for (const Twin* const tensor : {&small, &large}) {
    threads.emplace_back([&, tensor] {
      cuCtxSetCurrent(scene.context);
      const std::vector<DeviceRequest> batch(kTensors, tensor->request());
      for (size_t i = 0; i < kBatches; ++i)
        if (scene.submit(batch) == SampleOutcome::kSampled) submitted += kTensors;
    });
  }
  for (auto& thread : threads) thread.join();
  const auto results = scene.results();
  CHECK(submitted == 2 * kBatches * kTensors);
  REQUIRE(results.size() == submitted);
  const stats::StatsResult of_small = small.on_cpu(small.request()),
                           of_large = large.on_cpu(large.request());
  for (const TensorStats& result : results)
    require_same(result, result.address == small.address ? of_small : of_large);
}

}  // namespace
}  // namespace convtrace::cupti
