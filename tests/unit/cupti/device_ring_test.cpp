#include <memory>
#include <span>
#include <vector>

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
  constexpr int kMost = 512 / 2;  // a value alone takes two launches
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

/// @return of a batch whose results may come later.
SampleOutcome submit_later(DeviceScene& scene, const DeviceRequest& request,
                           CUstream stream = nullptr) {
  return scene.stats.submit(scene.context, {&request, 1}, stream, 0, Results::kLater);
}

TEST_CASE("device_stats: results of the default stream wait for fifteen more, a batch or a call") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(100'000);
  const stats::StatsResult want = tensor.on_cpu(tensor.request());
  for (int i = 0; i < 15; ++i)
    REQUIRE(submit_later(scene, tensor.request()) == SampleOutcome::kSampled);
  CHECK(scene.collect() == 15);
  CHECK(scene.stats.has_waiting(scene.context));
  REQUIRE(submit_later(scene, tensor.request()) == SampleOutcome::kSampled);
  CHECK(scene.collect() == 0);
  CHECK_FALSE(scene.stats.has_waiting(scene.context));
  for (int i = 0; i < 3; ++i)
    REQUIRE(submit_later(scene, tensor.request()) == SampleOutcome::kSampled);
  REQUIRE(scene.submit({tensor.request()}) == SampleOutcome::kSampled);
  CHECK(scene.collect() == 0);
  REQUIRE(submit_later(scene, tensor.request()) == SampleOutcome::kSampled);
  CHECK(scene.collect() == 1);
  scene.stats.fold_waiting(scene.context);
  const auto results = scene.results();
  REQUIRE(results.size() == 16 + 4 + 1);
  for (const TensorStats& result : results) CHECK(test::same_bits(result.stats, want.stats));
  scene.stats.fold_waiting(scene.context);  // nothing waits
  CHECK(scene.collect() == 0);
}

TEST_CASE("device_stats: results of other streams, which may be destroyed, do not wait") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  REQUIRE(submit_later(scene, tensor.request(), stream) == SampleOutcome::kSampled);
  CHECK(scene.results().size() == 1);
}

TEST_CASE("device_stats: a batch that is larger than its stream's log is folded in parts") {
  DeviceScene scene;
  scene.prepare();
  const Twin large(size_t{16} << 20, 1), small(1000, 2);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  const DeviceRequest of_large = large.request(DType::kU8, Capture::kHash);
  const std::vector<DeviceRequest> batch = {small.request(), of_large, of_large, of_large,
                                            small.request()};
  REQUIRE(scene.submit(batch, stream) == SampleOutcome::kSampled);
  const auto results = scene.results();
  REQUIRE(results.size() == batch.size());
  const uint64_t want = large.on_cpu(of_large).stats.hash;
  for (size_t i = 1; i < 4; ++i) CHECK(results[i].stats.hash == want);
  for (const size_t i : {0u, 4u})
    CHECK(test::same_bits(results[i].stats, small.on_cpu(batch[i]).stats));
}

TEST_CASE("device_stats: values that wait when a launch of ours fails are lost and counted") {
  DeviceScene scene;
  scene.prepare();
  const Twin tensor(64);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i)
    REQUIRE(submit_later(scene, tensor.request()) == SampleOutcome::kSampled);
  scene.driver.launch_kernel = [](auto...) { return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; };
  SECTION("of the fold") {
    scene.stats.fold_waiting(scene.context);
    CHECK(scene.submit({tensor.request()}) == SampleOutcome::kGpuWorkOff);
  }
  SECTION("of a batch behind them") {
    CHECK(submit_later(scene, tensor.request()) == SampleOutcome::kGpuWorkOff);
  }
  SECTION("of another stream") {
    CHECK(scene.submit({tensor.request()}, stream) == SampleOutcome::kGpuWorkOff);
  }
  CHECK(scene.collect() == 0);
  CHECK(scene.results().empty());
  CHECK(scene.lost(format::LossReason::kGpuWorkOff) == 3);
  CHECK_FALSE(scene.stats.has_waiting(scene.context));
}

TEST_CASE("device_stats: what waits behind a log that was full is lost with it and counted") {
  DeviceScene scene;
  scene.prepare();
  const Twin large(size_t{16} << 20, 1);
  const std::vector<DeviceRequest> batch(33, large.request(DType::kU8, Capture::kHash));
  REQUIRE(scene.stats.submit(scene.context, batch, nullptr, 0, Results::kLater) ==
          SampleOutcome::kSampled);
  REQUIRE(scene.stats.has_waiting(scene.context));
  scene.driver.launch_kernel = [](auto...) { return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; };
  CHECK(submit_later(scene, batch[0]) == SampleOutcome::kGpuWorkOff);
  CHECK(scene.collect() == 0);
  const uint64_t lost = scene.lost(format::LossReason::kGpuWorkOff);
  CHECK(lost > 0);
  CHECK(scene.results().size() + lost == batch.size());
}

/// A ring without a device behind it.
struct LoneRing {
  LoneRing() : memory(ring.allocate(8, stats::Variant::kWide)) { REQUIRE(!memory.empty()); }

  static DeviceRequest request(uint64_t count) {
    DeviceRequest request;
    static float elements[16];
    request.view = stats::dense_view(elements, DType::kF32, count);
    request.event.dtype = DType::kF32;
    return request;
  }
  static std::vector<DeviceRequest> many(size_t size) { return {size, request(16)}; }

  ResultRing::Claim claim(const std::vector<DeviceRequest>& batch, uint32_t lane) {
    const auto claimed = ring.claim(batch, lane);
    REQUIRE(claimed.has_value());
    return *claimed;
  }
  /// What the device does for a slot.
  void complete(uint32_t slot, const ResultRing::Claim& claim) {
    reinterpret_cast<stats::ResultSlot*>(memory.data())[slot].sequence = claim.sequence;
  }
  /// @return how many results have come out so far.
  size_t results() {
    uint64_t room = UINT64_MAX;
    ring.collect(sink, values, room);
    return sink.all<TensorStats>().size();
  }

  CollectingSink sink;
  DriverApi driver;
  DeviceValues values{driver, nullptr, sink};
  ResultRing ring;
  std::span<std::byte> memory;
};

TEST_CASE("result_ring: nothing comes out, and no slot is used again, before a batch is launched") {
  LoneRing lone;
  ResultRing& ring = lone.ring;
  const DeviceRequest empty = LoneRing::request(0);
  DeviceRequest broken = LoneRing::request(16);
  broken.view.rank = format::kMaxDims + 1;
  const auto batch = lone.claim({empty, broken, LoneRing::request(16)}, 0);
  lone.complete(2, batch);  // one of several launches is over
  CHECK(lone.results() == 0);
  CHECK_FALSE(ring.claim(LoneRing::many(ResultRing::kSlots - 2), 1).has_value());
  const auto other = lone.claim(LoneRing::many(ResultRing::kSlots - 3), 1);
  CHECK(ring.layout(batch.first) == nullptr);
  CHECK(ring.layout(batch.first + 1) == nullptr);
  CHECK(ring.layout(batch.first + 2) != nullptr);
  ring.launched(batch.first, 3, 2);
  CHECK(lone.results() == 2);
  const auto losses = lone.sink.all<format::Loss>();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].reason == format::LossReason::kTensorKind);
  CHECK(ring.launches_under_way() == 0);
  CHECK(ring.layout(other.first) != nullptr);
  CHECK(ring.claim(LoneRing::many(3), 1).has_value());
}

TEST_CASE("result_ring: a batch that is dropped gives no result, also of what is complete") {
  LoneRing lone;
  const auto batch = lone.claim(LoneRing::many(2), 0);
  lone.complete(0, batch);
  CHECK(lone.results() == 0);
  lone.ring.drop(batch.first);
  lone.ring.drop(batch.first + 1);
  lone.ring.launched(batch.first, 2, 1);
  CHECK(lone.results() == 0);
  CHECK(lone.ring.under_way() == 0);
  CHECK(lone.ring.launches_under_way() == 0);
}

TEST_CASE("result_ring: launches of a slot that is used again at once are counted once") {
  LoneRing lone;
  ResultRing& ring = lone.ring;
  for (uint32_t turn = 0; turn < 3; ++turn) {
    const auto batch = lone.claim(LoneRing::many(ResultRing::kSlots), 0);
    ring.launched(batch.first, ResultRing::kSlots, 5 - turn);
    for (uint32_t slot = 0; slot < ResultRing::kSlots; ++slot) lone.complete(slot, batch);
    CHECK(lone.results() == (turn + 1) * ResultRing::kSlots);
  }
  CHECK(ring.launches_under_way() == 0);
}

TEST_CASE("result_ring: a result is for others of its batch, and for all once it is launched") {
  LoneRing lone;
  ResultRing& ring = lone.ring;
  DeviceRequest request = LoneRing::request(16);
  request.moment = 5;
  DeviceRequest whole = request;
  whole.event.capture = Capture::kSnapshot;
  const auto is_read = [&](ResultRing::Ticket ticket) { return ring.layout(ticket) != nullptr; };

  const auto pending = lone.claim({request, request}, 0);
  CHECK(is_read(pending.first));
  CHECK_FALSE(is_read(pending.first + 1));
  const auto other = lone.claim({request}, 0);  // another thread's
  CHECK(is_read(other.first));
  ring.launched(pending.first, 2, 1);
  const auto behind = lone.claim({request, whole, request}, 0);
  CHECK_FALSE(is_read(behind.first));
  CHECK(is_read(behind.first + 1));  // it is copied too
  CHECK_FALSE(is_read(behind.first + 2));

  DeviceRequest later = request, without = request;
  later.moment = 6;
  without.moment = 0;
  DeviceRequest copied = whole;
  copied.moment = 6;
  const auto next = lone.claim({copied, later, without, without}, 0);
  for (uint64_t i = 0; i < 4; ++i) CHECK(is_read(next.first + i));  // a copy may yet be refused
  ring.forget_reads(0);
  CHECK(is_read(lone.claim({request}, 0).first));
}

TEST_CASE("result_ring: slots are kept for so many tickets, and are not under way") {
  LoneRing lone;
  ResultRing& ring = lone.ring;
  DeviceRequest request = LoneRing::request(16);
  request.moment = 1;
  DeviceRequest filler = LoneRing::request(8);
  const uint32_t fillers = GENERATE(ResultRing::kKept - 1, ResultRing::kKept);
  const auto first = lone.claim({request}, 0);
  ring.launched(first.first, 1, 1);
  lone.complete(0, first);
  CHECK(lone.results() == 1);
  CHECK(ring.under_way() == 0);
  for (uint32_t i = 0; i < fillers; ++i) {
    filler.moment = i + 2;
    const auto batch = lone.claim({filler}, 0);
    ring.launched(batch.first, 1, 1);
    lone.complete(i + 1, batch);
    CHECK(lone.results() == i + 2);
  }
  const auto last = lone.claim({request}, 0);
  CHECK((ring.layout(last.first) == nullptr) == (fillers < ResultRing::kKept));
  ring.launched(last.first, 1, 0);
  lone.complete(fillers + 1, last);
  CHECK(lone.results() == fillers + 2);
  CHECK_FALSE(
      ring.claim(LoneRing::many(ResultRing::kSlots - ResultRing::kKept + 1), 1).has_value());
  CHECK(ring.claim(LoneRing::many(ResultRing::kSlots - ResultRing::kKept), 1).has_value());
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
