#include "interposer/core/queue/event_queue.h"

#include <algorithm>
#include <thread>

#include "format/base/clock.h"
#include "tests/support/catch.h"
#include "tests/support/same_stats.h"

using namespace convtrace;
using namespace convtrace::engine;
using format::Event;

namespace {

Event step(uint64_t t_ns, uint32_t index) {
  format::Step event;
  event.header.t_ns = t_ns;
  event.header.thread = 1;
  event.index = index;
  return event;
}

std::vector<uint32_t> drain_steps(EventQueue& queue, uint64_t horizon = ~uint64_t{0}) {
  std::vector<uint32_t> indices;
  queue.drain(horizon, [&](const Event& event) {
    indices.push_back(std::get<format::Step>(event).index);
    return true;
  });
  return indices;
}

}  // namespace

TEST_CASE("byte_ring: records of many sizes come out as they went in, across the wrap",
          "[engine][queue]") {
  ByteRing ring;
  REQUIRE(ring.map(4096));
  uint32_t next_in = 0, next_out = 0;
  for (int round = 0; round < 2000; ++round) {
    const size_t bytes = 1 + (static_cast<size_t>(round) * 37) % 700;
    while (std::byte* out = ring.reserve(bytes, next_in)) {
      REQUIRE(reinterpret_cast<uintptr_t>(out) % 8 == 0);
      for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(next_in);
      ring.commit();
      ++next_in;
      if (next_in % 3 == 0) break;
    }
    const uint64_t end = ring.tail();
    while (round == 1999 || next_out + 1 < next_in) {  // an empty ring would begin anew
      const ByteRing::Record record = ring.front(end);
      if (record.payload == nullptr) break;
      REQUIRE(record.tag == next_out);
      REQUIRE(record.payload[0] == static_cast<std::byte>(next_out));
      ring.pop();
      ++next_out;
    }
  }
  CHECK(next_in == next_out);
  CHECK(next_in >= 2000);
}

TEST_CASE("byte_ring: a full ring refuses and loses nothing it had", "[engine][queue]") {
  ByteRing ring;
  REQUIRE(ring.map(4096));
  CHECK(ring.reserve(4096, 1) == nullptr);
  int taken = 0;
  while (ring.reserve(100, 7) != nullptr) {
    ring.commit();
    ++taken;
  }
  CHECK(taken == 4096 / (104 + 8));
  int found = 0;
  while (ring.front(ring.tail()).payload != nullptr) {
    ring.pop();
    ++found;
  }
  CHECK(found == taken);
  CHECK(ring.reserve(100, 7) != nullptr);
}

TEST_CASE("byte_ring: an empty ring begins anew in memory that it has touched", "[engine][queue]") {
  ByteRing ring;
  REQUIRE(ring.map(4096));
  std::byte* const first = ring.reserve(100, 1);
  ring.commit();
  const std::byte* const second = ring.reserve(100, 2);
  ring.commit();
  CHECK(second > first);
  for (uint32_t round = 3; round < 1000; ++round) {
    while (ring.front(ring.tail()).payload != nullptr) ring.pop();
    CHECK(ring.reserve(100, round) == first);
    ring.commit();
    CHECK(ring.front(ring.tail()).tag == round);
  }
}

TEST_CASE("event_pack: everything borrowed is copied", "[engine][queue]") {
  std::vector<uint64_t> shape{4, 5, 6}, ranges{1, 2};
  std::vector<std::byte> samples(32, std::byte{9}), leading(3, std::byte{8});
  format::TensorStats stats;
  stats.header.t_ns = 77;
  stats.has_shape = true;
  stats.shape = shape;
  stats.range_hashes = ranges;
  stats.samples = samples;
  stats.leading = leading;
  stats.stats.count = 120;
  const Event event = stats;
  std::vector<uint64_t> memory(packed_bytes(event) / 8);
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  pack(event, bytes);
  shape.assign(3, 0);
  samples.assign(32, std::byte{0});
  leading.assign(3, std::byte{0});
  ranges.assign(2, 0);

  CHECK(packed_header(bytes).t_ns == 77);
  const Event copy = unpack(event.index(), bytes);
  const auto& out = std::get<format::TensorStats>(copy);
  CHECK(std::vector<uint64_t>(out.shape.begin(), out.shape.end()) ==
        std::vector<uint64_t>{4, 5, 6});
  CHECK(std::vector<uint64_t>(out.range_hashes.begin(), out.range_hashes.end()) ==
        std::vector<uint64_t>{1, 2});
  CHECK(out.samples.size() == 32);
  CHECK(out.samples[31] == std::byte{9});
  CHECK(out.leading.size() == 3);
  CHECK(out.leading[2] == std::byte{8});
  CHECK(out.stats.count == 120);
}

TEST_CASE("event_pack: texts and operands survive their owner", "[engine][queue]") {
  std::string message = "something long enough to live on the heap, and then be gone";
  std::vector<format::Operand> operands(3);
  operands[2].address = 99;
  format::Finding finding;
  finding.message = message;
  format::Launch launch;
  launch.operands = operands;
  for (const Event& event : {Event{finding}, Event{launch}}) {
    std::vector<uint64_t> memory(packed_bytes(event) / 8);
    auto* bytes = reinterpret_cast<std::byte*>(memory.data());
    pack(event, bytes);
    const Event copy = unpack(event.index(), bytes);
    if (const auto* f = std::get_if<format::Finding>(&copy)) {
      CHECK(f->message == message);
      CHECK(f->message.data() != message.data());
    } else {
      CHECK(std::get<format::Launch>(copy).operands[2].address == 99);
    }
  }
}

TEST_CASE("event_queue: threads are merged by time", "[engine][queue]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  std::thread([&] {
    queue.push(step(10, 0));
    queue.push(step(30, 2));
    std::thread([&] { queue.push(step(20, 1)); }).join();
  }).join();
  queue.push(step(40, 3));
  CHECK(drain_steps(queue) == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(drain_steps(queue).empty());
}

TEST_CASE("event_queue: events after the horizon wait for the next drain", "[engine][queue]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  queue.push(step(10, 0));
  queue.push(step(30, 1));
  CHECK(drain_steps(queue, 20) == std::vector<uint32_t>{0});
  CHECK(drain_steps(queue, 30) == std::vector<uint32_t>{1});
}

TEST_CASE("event_queue: what does not fit is counted with its reason, the rest is kept",
          "[engine][queue]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  uint64_t pushed = 0;
  constexpr uint64_t kMore = kEventRingBytes / 10;  // than a ring holds
  for (; pushed < kMore; ++pushed) queue.push(step(pushed, static_cast<uint32_t>(pushed)));
  const std::vector<uint32_t> kept = drain_steps(queue);
  const EventQueue::Losses losses = queue.take_losses();
  CHECK(losses[static_cast<size_t>(format::LossReason::kQueueFull)] == pushed - kept.size());
  CHECK(kept.size() > 10'000);
  CHECK(kept.size() < pushed);
  CHECK(kept.front() == 0);

  const std::string huge(kEventRingBytes, 'x');
  format::Diagnostic diagnostic;
  diagnostic.message = huge;
  queue.push(diagnostic);
  CHECK(queue.take_losses()[static_cast<size_t>(format::LossReason::kRecordTooLarge)] == 1);
}

TEST_CASE("event_queue: the statistics of a small value are those of its elements at the push",
          "[engine][queue][stats]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  using format::DType;
  const DType dtype =
      GENERATE(DType::kF32, DType::kBF16, DType::kF64, DType::kI8, DType::kI64, DType::kBool,
               DType::kC64, DType::kC128, DType::kF8E4M3FN, DType::kF4E2M1FN, DType::kUnknown);
  const bool transposed = GENERATE(false, true);
  const auto capture = GENERATE(format::Capture::kStats, format::Capture::kHash);
  const uint32_t size = format::element_bytes(dtype);
  std::vector<std::byte> memory(40 * size);  // enough for a sketch
  for (size_t i = 0; i < memory.size(); ++i)
    memory[i] = dtype == DType::kBool ? std::byte(i % 2) : std::byte(i * 37 + 60);
  stats::TensorView view{.data = memory.data(), .dtype = dtype, .rank = 2};
  view.shape[0] = 4, view.shape[1] = 10;
  view.strides[0] = transposed ? 1 : 10, view.strides[1] = transposed ? 4 : 1;
  static stats::StatsResult expected;
  REQUIRE(stats::compute_on_cpu(view, capture, expected).ok());
  stats::Layout elements;
  REQUIRE(stats::flatten(view, elements).ok());

  format::TensorStats pushed;
  const uint64_t shape[] = {4, 10};
  pushed.dtype = dtype;
  pushed.capture = capture;
  pushed.bytes = memory.size();
  pushed.shape = shape;
  queue.push(step(1, 0));
  REQUIRE(queue.push_value(pushed, elements));
  memory.assign(memory.size(), std::byte{1});
  size_t taken = 0;
  queue.drain(~uint64_t{0}, [&](const Event& event) {
    if (++taken == 1) return std::holds_alternative<format::Step>(event);
    const auto& value = std::get<format::TensorStats>(event);
    CHECK(test::same_bits(value.stats, expected.stats));
    CHECK(value.variant == expected.variant);
    CHECK(std::ranges::equal(value.samples,
                             std::span(expected.samples).first(expected.sample_bytes)));
    CHECK(std::ranges::equal(value.shape, shape));
    CHECK(value.header.t_ns != 0);
    CHECK(value.header.thread != 0);
    return true;
  });
  CHECK(taken == 2);
}

TEST_CASE("event_queue: a hash has nothing of the statistics computed before it",
          "[engine][queue][stats]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  const std::vector<float> memory(40, 1.5F);
  stats::Layout elements;
  const auto view = stats::dense_view(memory.data(), format::DType::kF32, memory.size());
  REQUIRE(stats::flatten(view, elements).ok());
  std::vector<size_t> samples;
  std::vector<uint64_t> hashes, finite;
  for (const auto capture : {format::Capture::kStats, format::Capture::kHash}) {
    format::TensorStats value;
    value.dtype = format::DType::kF32;
    value.capture = capture;
    value.bytes = memory.size() * sizeof memory[0];
    REQUIRE(queue.push_value(value, elements));
  }
  queue.drain(~uint64_t{0}, [&](const Event& event) {
    const auto& value = std::get<format::TensorStats>(event);
    samples.push_back(value.samples.size());
    hashes.push_back(value.stats.hash);
    finite.push_back(value.stats.max.as_f64() == 1.5 ? 1 : 0);
    CHECK(value.range_hashes.empty());
    return true;
  });
  CHECK(samples == std::vector<size_t>{8 * sizeof memory[0], 0});
  REQUIRE(hashes.size() == 2);
  CHECK(hashes[0] == hashes[1]);
  CHECK(finite == std::vector<uint64_t>{1, 0});
}

TEST_CASE("event_queue: values that wait fill at most half a ring, a large one is not taken",
          "[engine][queue]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  const std::vector<std::byte> memory(kSmallValueBytes + 1);
  const auto push = [&](size_t bytes) {
    format::TensorStats value;
    value.dtype = format::DType::kU8;
    value.bytes = bytes;
    stats::Layout elements;
    const auto view = stats::dense_view(memory.data(), value.dtype, bytes);
    REQUIRE(stats::flatten(view, elements).ok());
    return queue.push_value(value, elements);
  };
  const auto drain = [&] { return queue.drain(~uint64_t{0}, [](const Event&) { return true; }); };
  CHECK_FALSE(push(kSmallValueBytes + 1));
  size_t pushed = 0;
  while (push(kSmallValueBytes)) ++pushed;
  CHECK(pushed > kEventRingBytes / 2 / (2 * kSmallValueBytes));
  CHECK(pushed <= kEventRingBytes / 2 / kSmallValueBytes + 1);
  constexpr uint32_t kSteps = kEventRingBytes / 2 / 100;
  for (uint32_t i = 0; i < kSteps; ++i) queue.push(step(i + 1, i));
  CHECK(drain() == pushed + kSteps);
  CHECK(push(kSmallValueBytes));
  CHECK(drain() == 1);
  CHECK(queue.take_losses()[static_cast<size_t>(format::LossReason::kQueueFull)] == 0);
}

TEST_CASE("event_queue: handed over between threads, cause comes before effect in every drain",
          "[engine][queue][threads]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  constexpr uint32_t kRounds = 4'000;
  std::atomic<uint32_t> turn{0};
  const auto player = [&](uint32_t me) {
    for (uint32_t i = me; i < kRounds; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) std::this_thread::yield();
      queue.push(step(now_ns(), i));
      turn.store(i + 1, std::memory_order_release);
    }
  };
  std::thread even(player, 0), odd(player, 1);
  std::vector<uint32_t> seen;
  while (seen.size() < kRounds) {
    for (const uint32_t index : drain_steps(queue, now_ns())) seen.push_back(index);
  }
  even.join();
  odd.join();
  bool ascending = true;
  for (uint32_t i = 0; i < kRounds; ++i) ascending = ascending && seen[i] == i;
  CHECK(ascending);
}

TEST_CASE("thread_context: a new thread takes over the context of one that ended, and its events",
          "[engine][queue][threads]") {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  ThreadContext* first = nullptr;
  std::thread([&] {
    first = this_thread();
    queue.push(step(1, 0));
  }).join();
  ThreadContext* second = nullptr;
  std::thread([&] {
    second = this_thread();
    queue.push(step(2, 1));
  }).join();
  CHECK(first == second);
  CHECK(drain_steps(queue) == std::vector<uint32_t>{0, 1});
}

TEST_CASE("wakeup: a call before the wait is not lost, and a wait ends by itself",
          "[engine][queue]") {
  Wakeup wakeup;
  wakeup.wake();
  const uint64_t begin = now_ns();
  wakeup.wait(10'000'000'000);
  CHECK(now_ns() - begin < 5'000'000'000);
  wakeup.wait(1'000'000);
  std::thread waker([&] { wakeup.wake(); });
  wakeup.wait(10'000'000'000);
  waker.join();
  CHECK(now_ns() - begin < 5'000'000'000);
}
