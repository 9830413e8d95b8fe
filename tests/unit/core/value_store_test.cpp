#include "interposer/core/values/value_store.h"

#include <atomic>
#include <random>
#include <thread>

#include "cupti/stats/compute.h"
#include "reader/snapshots.h"
#include "reader/trace_container.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"
#include "tests/unit/core/recording_sink.h"

using namespace convtrace;
using namespace convtrace::engine;
using namespace convtrace::test;
using Outcome = ValueStore::Outcome;

namespace {

constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint64_t kSecond = 1'000'000'000;

/// A tensor of f32 as the port hands it over.
struct Tensor {
  explicit Tensor(std::vector<float> of, uint32_t slot = 1) : values(std::move(of)) {
    event.slot = format::StringId{slot};
    event.dtype = format::DType::kF32;
    event.bytes = values.size() * sizeof(float);
    view = stats::dense_view(values.data(), event.dtype, values.size());
    finish();
  }
  Tensor(const Tensor&) = delete;  // its view is of its own values
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  void finish() {
    stats::StatsResult result;
    REQUIRE(stats::compute_on_cpu(view, format::Capture::kStats, result).ok());
    event.stats = result.stats;
    REQUIRE(stats::flatten(view, layout).ok());
  }
  [[nodiscard]] format::ContentId id() const { return {event.stats.hash, event.bytes}; }

  std::vector<float> values;
  stats::TensorView view;
  format::TensorStats event;
  stats::Layout layout;
};

std::vector<float> weights(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  for (float& value : values) value = normal(random);
  return values;
}

/// Each value in its last bit.
std::vector<float> next_step(std::vector<float> values) {
  for (float& value : values) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1u);
  return values;
}

/// A store and the trace that it ends in.
struct StoreFixture {
  explicit StoreFixture(ValueStore::Options options = {.memory_bytes = 64 << 20, .threads = 2})
      : store(options, wakeup, sink) {
    auto made = format::TraceWriter::create(std::make_unique<MemorySink>(bytes), {}, definitions);
    REQUIRE(made.ok());
    writer = std::move(made).value();
  }
  Outcome take(const Tensor& tensor) { return store.take(tensor.event, tensor.layout); }
  void write() {
    REQUIRE(store.settle(20 * kSecond));
    REQUIRE(store.write(*writer, kNever, kNever).ok());
  }
  /// @return what the trace holds of `tensor`.
  std::optional<std::vector<float>> read(const Tensor& tensor) {
    const auto container = reader::TraceContainer::open(
        std::make_unique<reader::MemorySource>(*bytes), reader::OpenPolicy::kScan);
    REQUIRE(container.ok());
    reader::Snapshots values(container.value()->source(), container.value()->records());
    std::vector<float> found;
    const Status status = values.read(tensor.id(), [&](Bytes part) {
      const size_t at = found.size();
      found.resize(at + part.size() / sizeof(float));
      std::memcpy(&found[at], part.data(), part.size());
      return true;
    });
    return status.ok() ? std::optional(found) : std::nullopt;
  }
  size_t blobs() {
    const auto container = reader::TraceContainer::open(
        std::make_unique<reader::MemorySource>(*bytes), reader::OpenPolicy::kScan);
    return static_cast<size_t>(std::ranges::count_if(
        container.value()->records(),
        [](const auto& record) { return record.header.kind == format::RecordKind::kBlob; }));
  }
  uint64_t lost(format::LossReason reason) {
    uint64_t count = 0;
    for (const format::Loss& loss : sink.all<format::Loss>())
      if (loss.reason == reason) count += loss.count;
    return count;
  }

  Wakeup wakeup;
  RecordingSink sink;
  SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  format::Definitions definitions;
  std::unique_ptr<format::TraceWriter> writer;
  ValueStore store;
};

}  // namespace

TEST_CASE("value_store: a tensor of several parts comes back", "[engine][snapshot]") {
  StoreFixture f;
  const Tensor tensor(weights(200'000, 1));
  CHECK(f.take(tensor) == Outcome::kStored);
  f.write();
  CHECK(f.blobs() == 4);
  CHECK((f.read(tensor) == tensor.values));
}

TEST_CASE("value_store: a strided tensor is stored in logical order", "[engine][snapshot]") {
  StoreFixture f;
  Tensor tensor(weights(300 * 400, 1));
  tensor.view.rank = 2;
  tensor.view.shape[0] = 400, tensor.view.shape[1] = 300;
  tensor.view.strides[0] = 1, tensor.view.strides[1] = 400;
  tensor.finish();
  CHECK(f.take(tensor) == Outcome::kStored);
  f.write();
  std::vector<float> expected;
  for (size_t row = 0; row < 400; ++row)
    for (size_t column = 0; column < 300; ++column)
      expected.push_back(tensor.values[column * 400 + row]);
  CHECK((f.read(tensor) == expected));
}

TEST_CASE("value_store: equal values are stored once", "[engine][snapshot]") {
  StoreFixture f;
  const Tensor tensor(weights(1000, 1));
  const Tensor same(weights(1000, 1), 2);
  CHECK_FALSE(f.store.has(tensor.event));
  for (int i = 0; i < 3; ++i) CHECK(f.take(tensor) == Outcome::kStored);
  CHECK(f.take(same) == Outcome::kStored);
  CHECK(f.store.has(same.event));
  f.write();
  CHECK(f.blobs() == 1);
  CHECK((f.read(same) == tensor.values));
}

TEST_CASE("value_store: a tensor without elements needs no room", "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 2, .threads = 1});
  CHECK(f.take(Tensor({})) == Outcome::kStored);
}

TEST_CASE("value_store: the next step of a place is stored as a difference", "[engine][snapshot]") {
  StoreFixture f;
  std::vector<Tensor> steps;
  steps.emplace_back(weights(100'000, 1));
  while (steps.size() < 20) steps.emplace_back(next_step(steps.back().values));
  // Other bits than the next step's, or every second one would have been stored before.
  for (size_t i = 2; i < steps.size(); ++i) {
    auto values = steps[i].values;
    values[i] = 1;
    steps[i] = Tensor(values);
  }
  uint64_t first = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const uint64_t before = f.writer->bytes_written();
    CHECK(f.take(steps[i]) == Outcome::kStored);
    f.write();
    const uint64_t took = f.writer->bytes_written() - before;
    if (i == 0) first = took;
    // The 17th has a chain of 16 before it, and stands by itself again.
    INFO("step " << i);
    CHECK((i % 17 == 0) == (took > first / 4));
  }
  for (const Tensor& step : steps) CHECK((f.read(step) == step.values));
}

TEST_CASE("value_store: what does not fit is degraded or dropped, and counted",
          "[engine][snapshot]") {
  const Tensor large(weights(300'000, 1));
  {
    StoreFixture f({.memory_bytes = 1 << 20, .threads = 1});
    CHECK(f.take(large) == Outcome::kStatsOnly);
    CHECK_FALSE(f.store.has(large.event));
    CHECK(f.lost(format::LossReason::kValueNotStored) == 1);
  }
  {
    StoreFixture f({.memory_bytes = 1 << 20, .threads = 1, .when_full = settings::WhenFull::kDrop});
    CHECK(f.take(large) == Outcome::kLeftOut);
    CHECK(f.lost(format::LossReason::kValueLeftOut) == 1);
  }
  {  // there will never be room: waiting is no use
    StoreFixture f(
        {.memory_bytes = 1 << 20, .threads = 1, .when_full = settings::WhenFull::kBlock});
    CHECK(f.take(large) == Outcome::kStatsOnly);
  }
}

/// The other thirds are for what it is compressed to and for the last values.
TEST_CASE("value_store: a third of the memory is for values on their way", "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 3 << 16, .threads = 1});
  CHECK(f.take(Tensor(weights((1 << 14) + 1, 1))) == Outcome::kStatsOnly);
  const Tensor whole(weights(1 << 14, 2));
  CHECK(f.take(whole) == Outcome::kStored);
  f.write();
  CHECK((f.read(whole) == whole.values));
}

TEST_CASE("value_store: memory is free again when a value is written", "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 1 << 20, .threads = 1});
  for (uint32_t i = 0; i < 5; ++i) {
    const Tensor tensor(weights(60'000, i), i);  // 240 kB of 341
    CHECK(f.take(tensor) == Outcome::kStored);
    CHECK(f.take(Tensor(weights(60'000, 100 + i), 100 + i)) == Outcome::kStatsOnly);
    f.write();
    CHECK((f.read(tensor) == tensor.values));
  }
  CHECK(f.lost(format::LossReason::kValueNotStored) == 5);
}

TEST_CASE("value_store: a thread that may block waits for room, not for ever",
          "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 1 << 20,
                  .threads = 1,
                  .when_full = settings::WhenFull::kBlock,
                  .patience_ns = 30 * kSecond});
  std::atomic<bool> writing{true}, failed{false};
  std::thread writer([&] {
    while (writing.load()) {
      if (!f.store.write(*f.writer, kNever, kNever).ok()) failed = true;
      std::this_thread::yield();
    }
  });
  std::vector<Tensor> tensors;
  for (uint32_t i = 0; i < 6; ++i) tensors.emplace_back(weights(60'000, i), i);
  for (const Tensor& tensor : tensors) CHECK(f.take(tensor) == Outcome::kStored);
  writing = false;
  writer.join();
  CHECK_FALSE(failed.load());
  f.write();
  for (const Tensor& tensor : tensors) CHECK((f.read(tensor) == tensor.values));

  StoreFixture impatient({.memory_bytes = 1 << 20,
                          .threads = 1,
                          .when_full = settings::WhenFull::kBlock,
                          .patience_ns = kSecond / 100});
  CHECK(impatient.take(tensors[0]) == Outcome::kStored);
  CHECK(impatient.take(tensors[1]) == Outcome::kStatsOnly);  // nobody writes
  CHECK(impatient.lost(format::LossReason::kValueNotStored) == 1);
}

TEST_CASE("value_store: waiting in vain costs the program once, until there is room",
          "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 1 << 20,
                  .threads = 1,
                  .when_full = settings::WhenFull::kBlock,
                  .patience_ns = kSecond / 2});
  REQUIRE(f.take(Tensor(weights(60'000, 0))) == Outcome::kStored);
  const auto begin = std::chrono::steady_clock::now();
  for (uint32_t i = 1; i <= 20; ++i) CHECK(f.take(Tensor(weights(60'000, i))) != Outcome::kStored);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  f.write();
  CHECK(f.take(Tensor(weights(60'000, 21))) == Outcome::kStored);
}

TEST_CASE("value_store: without a thread to compress there is nothing to wait for",
          "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 1 << 20,
                  .threads = 0,
                  .when_full = settings::WhenFull::kBlock,
                  .patience_ns = 600 * kSecond});
  const Tensor tensor(weights(1000, 1));
  CHECK(f.take(tensor) == Outcome::kStatsOnly);
  const auto begun = f.store.begin(tensor.event);
  CHECK((begun.value == nullptr && !begun.later));
}

TEST_CASE("value_store: an incoming value that is given up leaves nothing behind",
          "[engine][snapshot]") {
  StoreFixture f({.memory_bytes = 1 << 20, .threads = 1});
  const Tensor tensor(weights(60'000, 1));
  {
    const auto incoming = f.store.begin(tensor.event).value;
    REQUIRE(incoming != nullptr);
    CHECK(incoming->next().size() == tensor.event.bytes);
    const auto second = f.store.begin(Tensor(weights(60'000, 2)).event);
    CHECK((second.value == nullptr && second.later));
  }
  CHECK_FALSE(f.store.has(tensor.event));
  CHECK(f.take(tensor) == Outcome::kStored);
}

TEST_CASE("value_store: closing counts what was under way, and takes nothing more",
          "[engine][snapshot]") {
  StoreFixture f;
  const Tensor tensor(weights(200'000, 1));
  CHECK(f.take(tensor) == Outcome::kStored);
  REQUIRE(f.store.settle(20 * kSecond));
  f.store.close(format::LossReason::kDiskBudget);
  CHECK(f.lost(format::LossReason::kDiskBudget) == 4);
  CHECK(f.take(Tensor(weights(100, 2))) == Outcome::kStatsOnly);
  REQUIRE(f.store.write(*f.writer, kNever, kNever).ok());
  CHECK(f.blobs() == 0);
}

TEST_CASE("value_store: writing stops at the disk budget", "[engine][snapshot]") {
  StoreFixture f;
  CHECK(f.take(Tensor(weights(400'000, 1))) == Outcome::kStored);
  REQUIRE(f.store.settle(20 * kSecond));
  const uint64_t budget = f.writer->bytes_written() + 1;
  REQUIRE(f.store.write(*f.writer, budget, kNever).ok());
  CHECK(f.blobs() == 1);
  f.store.close(format::LossReason::kDiskBudget);
  CHECK(f.lost(format::LossReason::kDiskBudget) == 6);
}

TEST_CASE("value_store: a turn of writing ends in time, and the next goes on",
          "[engine][snapshot]") {
  StoreFixture f;
  const Tensor tensor(weights(200'000, 1));
  CHECK(f.take(tensor) == Outcome::kStored);
  REQUIRE(f.store.settle(20 * kSecond));
  for (size_t turn = 1; turn <= 4; ++turn) {
    REQUIRE(f.store.write(*f.writer, kNever, 0).ok());
    CHECK(f.blobs() == turn);
  }
  CHECK((f.read(tensor) == tensor.values));
}

TEST_CASE("value_store: many threads may hand in values", "[engine][snapshot]") {
  StoreFixture f;
  std::vector<Tensor> tensors;
  for (uint32_t i = 0; i < 24; ++i) tensors.emplace_back(weights(70'000 + i, i % 12), i % 6);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < tensors.size(); i += 4) f.take(tensors[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  f.write();
  for (const Tensor& tensor : tensors) CHECK((f.read(tensor) == tensor.values));
}
