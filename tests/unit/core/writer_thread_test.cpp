#include "interposer/core/writer/writer_thread.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <thread>

#include "format/base/clock.h"
#include "format/base/log.h"
#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"
#include "tests/support/temp_dir.h"

using namespace convtrace;
using namespace convtrace::engine;
using namespace convtrace::test;

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

/// A trace in memory, and what the thread did to get it.
class Client final : public WriterClient {
 public:
  explicit Client(uint64_t capacity = UINT64_MAX, uint64_t max_bytes = UINT64_MAX,
                  settings::Ring ring = {})
      : capacity_(capacity), max_bytes_(max_bytes), ring_(ring) {}

  OpenTrace open_trace() override {
    auto writer = format::TraceWriter::create(std::make_unique<MemorySink>(bytes, capacity_),
                                              format::TraceMeta{}, definitions);
    OpenTrace trace{std::move(writer).value(), "memory", nullptr, max_bytes_, nullptr};
    if (ring_.steps != 0) trace.recorder = std::make_unique<FlightRecorder>(ring_);
    return trace;
  }
  bool before_drain() override {
    ++rounds;
    while (stuck.load()) {
      standing = true;
      std::this_thread::yield();
    }
    standing = false;
    return fill && fill();
  }
  std::optional<format::TraceMeta> changed_meta(OpenTrace&) override { return std::nullopt; }
  std::span<const format::Finding> judge(const format::Event&) noexcept override { return {}; }
  uint64_t take_host_ns() noexcept override { return host_ns.exchange(0); }
  Status write_values(format::TraceWriter&, uint64_t, bool last) override {
    if (last) ++last_values;
    return kOkStatus;
  }
  void give_up_values(format::LossReason reason) noexcept override { given_up = reason; }

  SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  format::Definitions definitions;
  std::atomic<int> rounds{0};
  std::atomic<uint64_t> host_ns{0};
  int last_values = 0;
  std::optional<format::LossReason> given_up;
  std::atomic<bool> stuck{false};
  std::atomic<bool> standing{false};
  std::function<bool()> fill;  ///< set before the thread starts; as before_drain()

 private:
  uint64_t capacity_, max_bytes_;
  settings::Ring ring_;
};

/// What a reader finds in the bytes of a trace.
struct Contents {
  reader::TraceState state = reader::TraceState::kDamaged;
  uint64_t findings = 0;
  std::vector<format::Cost> costs;
  std::array<uint64_t, format::kEnumCount<format::LossReason>> lost{};
};

Contents contents(const SharedBytes& bytes) {
  const TempDir folder;
  const std::string path = folder / "t.ctrace";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes->data()),
             static_cast<std::streamsize>(bytes->size()));
  auto opened = reader::TraceReader::open(path);
  REQUIRE(opened.ok());
  Contents found;
  while (const format::Event* event = opened.value()->next()) {
    if (std::holds_alternative<format::Finding>(*event)) ++found.findings;
    if (const auto* cost = std::get_if<format::Cost>(event)) found.costs.push_back(*cost);
    if (const auto* loss = std::get_if<format::Loss>(event))
      found.lost[static_cast<size_t>(loss->reason)] += loss->count;
  }
  found.state = opened.value()->state();
  return found;
}

struct WriterFixture {
  explicit WriterFixture(uint64_t capacity = UINT64_MAX, uint64_t max_bytes = UINT64_MAX,
                         settings::Ring ring = {}, std::function<bool(WriterFixture&)> fill = {})
      : client(capacity, max_bytes, ring) {
    if (fill) client.fill = [this, fill] { return fill(*this); };
    configure_log(format::Level::kError, 1, &silent);
    REQUIRE(state.begin_arming());
    state.activate();
    REQUIRE(thread.start());
  }
  ~WriterFixture() {
    client.stuck = false;
    thread.finish(10 * kSecondNs);
    configure_log(format::Level::kWarning, 0);
  }

  void push_findings(int count, format::Level level, size_t text_bytes = 100) {
    // Text that does not compress, so that bytes written follow bytes pushed.
    std::string message(text_bytes, ' ');
    uint64_t random = 88172645463325252;
    for (int i = 0; i < count; ++i) {
      for (char& c : message) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        c = static_cast<char>('!' + random % 90);
      }
      format::Finding finding;
      finding.level = level;
      finding.message = message;
      queue.push(finding);
    }
  }
  template <typename Condition>
  bool within_seconds(int seconds, Condition condition) {
    const uint64_t begin = now_ns();
    while (!condition() && now_ns() - begin < static_cast<uint64_t>(seconds) * kSecondNs)
      std::this_thread::yield();
    return condition();
  }

  /// Lets the thread make some rounds and then stand still: what it wrote may be looked at.
  void stop_after_rounds(int rounds) {
    const int enough = client.rounds.load() + rounds;
    REQUIRE(within_seconds(10, [&] { return client.rounds.load() >= enough; }));
    client.stuck = true;
    REQUIRE(within_seconds(10, [&] { return client.standing.load(); }));
  }

  GuardedFile silent{open("/dev/null", O_WRONLY | O_CLOEXEC), {}, false};
  State state;
  Wakeup wakeup;
  EventQueue queue{wakeup};
  Client client;
  WriterThread thread{state, queue, wakeup, client};
};

}  // namespace

TEST_CASE("writer_thread: finishing writes what is queued and closes the trace",
          "[engine][writer]") {
  WriterFixture f;
  f.push_findings(100, format::Level::kWarning);
  f.queue.lose(format::LossReason::kRingFull, 7);
  REQUIRE(f.thread.finish(10 * kSecondNs));
  CHECK_FALSE(f.state.active());
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.state == reader::TraceState::kComplete);
  CHECK(trace.findings == 100);
  CHECK(trace.lost[static_cast<size_t>(format::LossReason::kRingFull)] == 7);
}

TEST_CASE("writer_thread: the trace says what tracing took of the program's time",
          "[engine][writer]") {
  WriterFixture f;
  f.push_findings(100, format::Level::kError);
  f.client.host_ns = 4711;
  REQUIRE(f.thread.finish(10 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  REQUIRE(trace.costs.size() == 1);
  CHECK(trace.costs[0].host_ns == 4711);
  CHECK(trace.costs[0].bytes > 64);
  CHECK(trace.costs[0].bytes <= f.client.bytes->size());
}

TEST_CASE("writer_thread: an error finding is written at once", "[engine][writer]") {
  WriterFixture f;
  f.push_findings(1, format::Level::kError);
  f.stop_after_rounds(3);
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.state == reader::TraceState::kUnclosed);
  CHECK(trace.findings == 1);
}

TEST_CASE("writer_thread: other events are written within about a second", "[engine][writer]") {
  WriterFixture f;
  f.push_findings(1, format::Level::kWarning);
  f.stop_after_rounds(3);
  CHECK(contents(f.client.bytes).findings == 0);
  f.client.stuck = false;
  const uint64_t begin = now_ns();
  f.within_seconds(5, [begin] { return now_ns() - begin > kSecondNs + kSecondNs / 10; });
  f.stop_after_rounds(3);
  CHECK(contents(f.client.bytes).findings == 1);
}

TEST_CASE("writer_thread: a full disk ends tracing and nothing else", "[engine][writer]") {
  WriterFixture f(20'000);
  f.push_findings(50, format::Level::kError, 2000);
  REQUIRE(f.within_seconds(10, [&f] { return !f.state.active(); }));
  CHECK(std::string(f.state.reason()) == "the trace cannot be written");
  CHECK(f.thread.finish(10 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.state == reader::TraceState::kUnclosed);
  CHECK(trace.findings > 0);
  CHECK(trace.findings < 50);
}

TEST_CASE("writer_thread: at the budget the trace is closed with a record", "[engine][writer]") {
  WriterFixture f(UINT64_MAX, 30'000);
  f.push_findings(50, format::Level::kError, 2000);
  REQUIRE(f.within_seconds(10, [&f] { return !f.state.active(); }));
  CHECK(std::string(f.state.reason()) == "disk budget reached");
  CHECK(f.thread.finish(10 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.state == reader::TraceState::kComplete);
  CHECK(trace.findings > 0);
  CHECK(trace.findings + trace.lost[static_cast<size_t>(format::LossReason::kDiskBudget)] >= 50);
}

TEST_CASE("writer_thread: a deadline is kept even if the writer hangs", "[engine][writer]") {
  WriterFixture f;
  f.client.stuck = true;
  const uint64_t begin = now_ns();
  CHECK_FALSE(f.thread.finish(100'000'000));
  CHECK(now_ns() - begin < 5 * kSecondNs);
}

TEST_CASE("writer_thread: while the disk stalls every event is written or counted",
          "[engine][writer]") {
  WriterFixture f;
  f.client.stuck = true;
  REQUIRE(f.within_seconds(10, [&f] { return f.client.standing.load(); }));
  constexpr int kPushed = kEventRingBytes / 100;  // more than a ring holds
  f.push_findings(kPushed, format::Level::kWarning);
  f.client.stuck = false;
  REQUIRE(f.thread.finish(10 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  const uint64_t lost = trace.lost[static_cast<size_t>(format::LossReason::kQueueFull)];
  CHECK(lost > 0);
  CHECK(trace.findings > 0);
  CHECK(trace.findings + lost == kPushed);
}

TEST_CASE("writer_thread: more than a ring of waiting results is written in turns, none lost",
          "[engine][writer]") {
  constexpr int kResults = 4096, kAtOnce = 256;
  std::atomic<int> ready{0};
  const auto fill = [&](WriterFixture& f) {
    const int count = std::min(ready.load(), kAtOnce);
    f.push_findings(count, format::Level::kWarning, 2000);
    return (ready -= count) > 0;
  };
  WriterFixture f(UINT64_MAX, UINT64_MAX, {}, fill);
  f.client.stuck = true;
  REQUIRE(f.within_seconds(10, [&f] { return f.client.standing.load(); }));
  ready = kResults;
  f.client.stuck = false;
  REQUIRE(f.thread.finish(30 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.findings == kResults);
  CHECK(trace.lost[static_cast<size_t>(format::LossReason::kQueueFull)] == 0);
}

TEST_CASE("writer_thread: a flight recorder writes when it is told to", "[engine][writer]") {
  settings::Ring ring;
  ring.steps = 2;
  WriterFixture f(UINT64_MAX, UINT64_MAX, ring);
  f.push_findings(5, format::Level::kError);  // a trigger, but not one of this ring
  f.stop_after_rounds(3);
  CHECK(contents(f.client.bytes).findings == 0);
  f.client.stuck = false;
  f.thread.trigger("signal");
  f.stop_after_rounds(3);
  CHECK(contents(f.client.bytes).findings == 5);
  f.client.stuck = false;
  f.push_findings(3, format::Level::kError);
  REQUIRE(f.thread.finish(10 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.state == reader::TraceState::kComplete);
  CHECK(trace.findings == 5);
}

TEST_CASE(
    "writer_thread: a pause writes what is queued and ends the thread; the next event starts it",
    "[engine][writer]") {
  WriterFixture f;
  for (int round = 0; round < 20; ++round) {
    f.push_findings(10, format::Level::kWarning);
    f.thread.pause(10 * kSecondNs);
    REQUIRE(f.thread.paused());
    CHECK(contents(f.client.bytes).findings == static_cast<uint64_t>(round + 1) * 10);
    f.thread.resume();
    CHECK(f.thread.running());
  }
  REQUIRE(f.thread.finish(10 * kSecondNs));
  CHECK(contents(f.client.bytes).state == reader::TraceState::kComplete);
}

TEST_CASE("writer_thread: what is pushed during a pause is in the trace, though only its end comes",
          "[engine][writer]") {
  WriterFixture f;
  f.thread.pause(10 * kSecondNs);
  REQUIRE(f.thread.paused());
  CHECK(f.state.active());
  f.push_findings(10, format::Level::kWarning);
  REQUIRE(f.thread.finish(10 * kSecondNs));
  const Contents trace = contents(f.client.bytes);
  CHECK(trace.state == reader::TraceState::kComplete);
  CHECK(trace.findings == 10);
  CHECK_FALSE(f.state.active());
}

TEST_CASE("writer_thread: threads that go on together after a pause start one writer",
          "[engine][writer]") {
  WriterFixture f;
  for (int round = 0; round < 50; ++round) {
    f.thread.pause(10 * kSecondNs);
    REQUIRE(f.thread.paused());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&f] {
        f.thread.resume();
        f.queue.push(format::Finding{});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  REQUIRE(f.thread.finish(10 * kSecondNs));
  CHECK(contents(f.client.bytes).findings == 200);
}

TEST_CASE("writer_thread: a writer that hangs delays one fork, and is asked again when it goes on",
          "[engine][writer]") {
  WriterFixture f;
  f.client.stuck = true;
  REQUIRE(f.within_seconds(10, [&f] { return f.client.standing.load(); }));
  const uint64_t begin = now_ns();
  f.thread.pause(200'000'000);
  for (int fork = 0; fork < 100; ++fork) f.thread.pause(200'000'000);
  CHECK(now_ns() - begin < 5 * kSecondNs);
  CHECK(f.thread.running());
  f.client.stuck = false;
  REQUIRE(f.within_seconds(10, [&f] {
    f.thread.pause(kSecondNs);
    return f.thread.paused();
  }));
}
