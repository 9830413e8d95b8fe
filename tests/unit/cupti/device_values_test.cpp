#include "cupti/values/device_values.h"

#include <future>
#include <map>
#include <set>
#include <thread>

#include "tests/unit/cupti/device_scene.h"
#include "tests/unit/cupti/stats/named_views.h"

// Values of device tensors: copied on the program's stream, fetched on ours.

namespace convtrace::cupti {
namespace {

using format::LossReason;

/// Takes what comes, as the engine's store does.
class Values final : public ValueSink {
 public:
  bool has(const TensorStats& event) noexcept override {
    const std::lock_guard lock(mutex);
    return known.contains(event.stats.hash);
  }
  Begun begin(const TensorStats& event) noexcept override {
    const std::lock_guard lock(mutex);
    ++asked;
    if (!room) return {.value = nullptr, .later = !closed};
    ++begun;
    known.insert(event.stats.hash);
    return {.value = std::make_unique<Incoming>(*this, event)};
  }
  bool refuse() noexcept override {
    ++refused;
    return keep_statistics;
  }
  [[nodiscard]] std::vector<uint8_t> of(const TensorStats& event) {
    const std::lock_guard lock(mutex);
    return stored[event.stats.hash];
  }

  std::mutex mutex;
  std::set<uint64_t> known;
  std::map<uint64_t, std::vector<uint8_t>> stored;
  bool room = true;
  bool closed = false;
  bool keep_statistics = true;
  std::atomic<int> asked{0}, begun{0}, refused{0};

 private:
  class Incoming final : public IncomingValue {
   public:
    Incoming(Values& values, const TensorStats& event)
        : values_(values), hash_(event.stats.hash), bytes_(event.bytes) {}
    std::span<std::byte> next() noexcept override {
      const size_t left = bytes_.size() - at_;
      return std::as_writable_bytes(std::span(bytes_))
          .subspan(at_, std::min<size_t>(left, format::kPartBytes));
    }
    void filled() noexcept override {
      at_ += std::min<size_t>(bytes_.size() - at_, format::kPartBytes);
      if (at_ < bytes_.size()) return;
      const std::lock_guard lock(values_.mutex);
      values_.stored[hash_] = bytes_;
    }

   private:
    Values& values_;
    uint64_t hash_;
    std::vector<uint8_t> bytes_;
    size_t at_ = 0;
  };
};

/// A base, so that it outlives the scene.
struct ValuesFirst {
  Values values;
};

struct ValueScene : ValuesFirst, DeviceScene {
  explicit ValueScene(uint64_t arena_bytes = 4 << 20) : DeviceScene(8, &values, arena_bytes) {
    prepare();
  }
  static DeviceRequest snapshot(const Twin& tensor) {
    DeviceRequest request = tensor.request(DType::kF32, Capture::kSnapshot);
    request.event.bytes = tensor.host.size();
    return request;
  }
  /// Until nothing is under way, at most ten seconds.
  bool fetch() {
    for (int i = 0; i < 1000; ++i) {
      collect();
      if (stats.values_under_way() == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
};

TEST_CASE("device_values: the bytes of device tensors arrive as they were") {
  ValueScene scene;
  std::vector<std::unique_ptr<Twin>> tensors;
  std::vector<DeviceRequest> batch;
  for (const uint64_t bytes : {4u, 1000u, 262'144u, 262'148u, 1'500'000u}) {
    tensors.push_back(std::make_unique<Twin>(bytes, bytes));
    batch.push_back(ValueScene::snapshot(*tensors.back()));
  }
  REQUIRE(scene.submit(batch) == SampleOutcome::kSampled);
  // The program may write over its tensors at once: the copy lies before that on the stream.
  for (const auto& tensor : tensors)
    REQUIRE(cuMemsetD8(tensor->address, 0, tensor->host.size()) == CUDA_SUCCESS);
  REQUIRE(scene.fetch());
  const auto results = scene.results();
  REQUIRE(results.size() == batch.size());
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    CHECK(results[i].capture == Capture::kSnapshot);
    CHECK((scene.values.of(results[i]) == tensors[i]->host));
  }
  CHECK(scene.values.refused == 0);
}

TEST_CASE("device_values: what is stored already does not cross the bus") {
  ValueScene scene;
  const Twin tensor(100'000);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
    REQUIRE(scene.fetch());
  }
  CHECK(scene.values.begun == 1);
  const Twin other(100'000, 2);
  REQUIRE(scene.submit(std::vector(4, ValueScene::snapshot(other))) == SampleOutcome::kSampled);
  REQUIRE(scene.fetch());
  CHECK(scene.values.begun == 2);
  CHECK((scene.values.of(scene.results().back()) == other.host));
  for (const TensorStats& result : scene.results()) CHECK(result.capture == Capture::kSnapshot);
}

TEST_CASE("device_values: many more values than the arena holds at once go through it") {
  ValueScene scene(1 << 20);
  const Twin tensor(300'000);
  std::vector<std::vector<uint8_t>> expected;
  for (uint32_t i = 0; i < 40; ++i) {
    REQUIRE(cuMemsetD8(tensor.address + i * 7, static_cast<uint8_t>(i + 1), 5) == CUDA_SUCCESS);
    REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
    expected.emplace_back(tensor.host.size());
    REQUIRE(cuMemcpyDtoH(expected.back().data(), tensor.address, tensor.host.size()) ==
            CUDA_SUCCESS);
    if (i % 3 == 2) REQUIRE(scene.fetch());
  }
  REQUIRE(scene.fetch());
  const auto results = scene.results();
  REQUIRE(results.size() == 40);
  CHECK(scene.values.refused == 0);
  for (size_t i = 0; i < 40; ++i) CHECK((scene.values.of(results[i]) == expected[i]));
}

TEST_CASE("device_values: without room in the arena statistics stay, or the record goes") {
  for (const bool keep : {true, false}) {
    ValueScene scene(1 << 20);
    scene.values.keep_statistics = keep;
    const Twin large(1'100'000);
    const Twin small(1000);
    REQUIRE(scene.submit({ValueScene::snapshot(large), ValueScene::snapshot(small)}) ==
            SampleOutcome::kSampled);
    REQUIRE(scene.fetch());
    const auto results = scene.results();
    REQUIRE(results.size() == (keep ? 2 : 1));
    CHECK(results.front().capture == (keep ? Capture::kStats : Capture::kSnapshot));
    CHECK((scene.values.of(results.back()) == small.host));
    CHECK(scene.values.refused == 1);
  }
}

TEST_CASE("device_values: views are stored in logical order, whatever their strides") {
  const auto view = GENERATE(from_range(stats::test::named_views()));
  CAPTURE(view.name);
  ValueScene scene;
  const Twin buffer(stats::test::kViewBufferBytes);
  DeviceRequest request =
      buffer.request(view.at(reinterpret_cast<const void*>(buffer.address)), Capture::kSnapshot);
  request.view.data = view.at(reinterpret_cast<const void*>(buffer.address)).data;
  const std::vector<uint8_t> expected = view.copy_of(buffer.host.data());
  request.event.bytes = expected.size();
  REQUIRE(scene.submit({request}) == SampleOutcome::kSampled);
  // The program may write over it at once.
  REQUIRE(cuMemsetD8(buffer.address, 0, buffer.host.size()) == CUDA_SUCCESS);
  REQUIRE(scene.fetch());
  const auto results = scene.results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].capture == Capture::kSnapshot);
  CHECK((scene.values.of(results[0]) == expected));
  CHECK(scene.values.refused == 0);
}

TEST_CASE("device_values: without room on the host values wait in the arena") {
  ValueScene scene(1 << 20);
  scene.values.room = false;
  const Twin tensor(600'000);
  REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
  const Twin other(600'000, 2);
  scene.collect();
  REQUIRE(scene.submit({ValueScene::snapshot(other)}) == SampleOutcome::kSampled);
  CHECK(scene.values.refused == 1);  // the first is still there
  {
    const std::lock_guard lock(scene.values.mutex);
    scene.values.room = true;
  }
  REQUIRE(scene.fetch());
  CHECK((scene.values.of(scene.results()[0]) == tensor.host));
}

TEST_CASE("device_values: the sink is asked for room once a turn of the writer") {
  ValueScene scene;
  scene.values.room = false;
  const Twin tensor(1000);
  REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
  for (int turn = 0; turn < 3; ++turn) {
    scene.collect();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  CHECK(scene.values.asked <= 3);
  CHECK(scene.stats.values_under_way() == 1);
}

TEST_CASE("device_values: a sink that takes nothing any more is not waited for") {
  ValueScene scene;
  scene.values.room = false;
  scene.values.closed = true;
  const Twin tensor(1000);
  REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
  REQUIRE(scene.fetch());
  CHECK(scene.values.refused == 1);
  CHECK(scene.lost(LossReason::kContextEnded) == 0);
}

TEST_CASE("device_values: what a context had not handed over when it ended is counted") {
  ValueScene scene;
  scene.values.room = false;
  const Twin tensor(1000);
  REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
  scene.collect();
  scene.stats.forget(scene.context);
  CHECK(scene.lost(LossReason::kContextEnded) == 1);
  CHECK(scene.stats.values_under_way() == 0);
}

/// A driver whose cuEventQuery hangs, as where another thread holds its locks, until it is let go.
struct StuckDriver {
  static inline std::atomic<bool> inside{false}, stuck{false};
  static CUresult query(CUevent) {
    inside = true;
    while (stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return CUDA_ERROR_NOT_READY;
  }
};

TEST_CASE("device_values: nobody waits for a call that the driver does not return from") {
  ValueScene scene;
  scene.driver.event_query = &StuckDriver::query;
  StuckDriver::inside = false;
  StuckDriver::stuck = true;
  const Twin tensor(1000), other(1000, 2);
  REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
  for (int i = 0; i < 1000 && !StuckDriver::inside; ++i) {
    scene.collect();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(StuckDriver::inside);
  // The writer thread's turn with a further value, and then the context's end in a callback.
  REQUIRE(scene.submit({ValueScene::snapshot(other)}) == SampleOutcome::kSampled);
  auto ended = std::async(std::launch::async, [&] {
    scene.collect();
    scene.stats.forget(scene.context);
  });
  const bool in_time = ended.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  StuckDriver::stuck = false;
  ended.get();
  CHECK(in_time);
  CHECK(scene.lost(LossReason::kContextEnded) == 2);
}

TEST_CASE("device_values: nobody asked, so no memory is taken and nothing is stored") {
  DeviceScene scene;
  size_t before = 0, after = 0, total = 0;
  REQUIRE(cuMemGetInfo(&before, &total) == CUDA_SUCCESS);
  scene.prepare();
  REQUIRE(cuMemGetInfo(&after, &total) == CUDA_SUCCESS);
  CHECK(before - after < (32u << 20));
  const Twin tensor(1000);
  REQUIRE(scene.submit({ValueScene::snapshot(tensor)}) == SampleOutcome::kSampled);
  CHECK(scene.results()[0].capture == Capture::kStats);
}

TEST_CASE("staging_arena: places never overlap, and all of it is used") {
  StagingArena arena;
  arena.set_size(1024);
  const auto a = arena.claim(256), b = arena.claim(500), c = arena.claim(1);
  REQUIRE((a && b && c));
  CHECK(std::set{*a, *b, *c} == std::set<uint64_t>{0, 256, 768});
  CHECK_FALSE(arena.claim(1));
  arena.release(*b);  // the oldest holds it up
  CHECK_FALSE(arena.claim(1));
  arena.release(*a);
  CHECK(arena.claim(700) == 0);
  CHECK_FALSE(arena.claim(1));
  arena.release(*c);
  arena.release(0);
  CHECK(arena.claim(1024) == 0);
  CHECK_FALSE(arena.claim(1));
  arena.release(0);
  CHECK_FALSE(arena.claim(1025));
}

}  // namespace
}  // namespace convtrace::cupti
