// The whole way from the program's calls to the file: 16 threads, the interceptor, the queue and
// the writer thread, linked together. Its worth is in the sanitizers' builds, which cannot be
// preloaded.

#include <fcntl.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "format/base/log.h"
#include "interposer/core/writer/writer_thread.h"
#include "reader/trace_reader.h"
#include "tests/support/memory_sink.h"
#include "tests/unit/cupti/stress_crew.h"

namespace convtrace::engine {
namespace {

/// Puts what is emitted into the queue, as the engine does, and counts it.
class QueueSink final : public format::EventSink {
 public:
  explicit QueueSink(EventQueue& queue) : queue_(queue) {}
  void emit(const format::Event& event) noexcept override {
    emitted.fetch_add(1, std::memory_order_relaxed);
    queue_.push(event);
  }
  std::atomic<uint64_t> emitted{0};

 private:
  EventQueue& queue_;
};

class Client final : public WriterClient {
 public:
  OpenTrace open_trace() override {
    auto writer = format::TraceWriter::create(std::make_unique<test::MemorySink>(bytes, UINT64_MAX),
                                              format::TraceMeta{}, definitions);
    return {std::move(writer).value(), "memory", nullptr, UINT64_MAX, nullptr};
  }
  bool before_drain() override { return false; }
  std::optional<format::TraceMeta> changed_meta(OpenTrace&) override { return std::nullopt; }
  std::span<const format::Finding> judge(const format::Event&) noexcept override { return {}; }
  uint64_t take_host_ns() noexcept override { return 0; }
  Status write_values(format::TraceWriter&, uint64_t, bool) override { return kOkStatus; }
  void give_up_values(format::LossReason) noexcept override {}

  test::SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  format::Definitions definitions;
};

/// How many events of each kind a reader finds, and how many records the trace says are lost.
struct Contents {
  explicit Contents(const std::vector<std::byte>& bytes) {
    auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(bytes));
    REQUIRE(opened.ok());
    while (const format::Event* event = opened.value()->next()) {
      ++counts[event->index()];
      if (const auto* loss = std::get_if<format::Loss>(event)) lost += loss->count;
    }
    CHECK(opened.value()->state() == reader::TraceState::kComplete);
  }
  template <typename Kind>
  [[nodiscard]] uint64_t count() const {
    return counts[format::Event(Kind{}).index()];
  }
  std::array<uint64_t, std::variant_size_v<format::Event>> counts{};
  uint64_t lost = 0;
};

TEST_CASE("stress: a trace holds all that 16 threads do, or says how much is missing") {
  static GuardedFile silent(open("/dev/null", O_WRONLY | O_CLOEXEC), {}, false);
  configure_log(format::Level::kError, 1, &silent);
  State state;
  Wakeup wakeup;
  EventQueue queue(wakeup);
  Client client;
  WriterThread writer(state, queue, wakeup, client);
  REQUIRE(state.begin_arming());
  state.activate();
  REQUIRE(writer.start());
  QueueSink sink(queue);
  cupti::StressRun stress(sink, client.definitions);
  stress.run();
  REQUIRE(writer.finish(60'000'000'000));

  const cupti::Done& done = stress.done;
  CHECK(done.failures == 0);
  const Contents trace(*client.bytes);
  const uint64_t recorded = trace.count<format::Launch>() + trace.count<format::Alloc>() +
                            trace.count<format::Free>() + trace.count<format::Sync>() +
                            trace.count<format::TensorStats>();
  CHECK(recorded + trace.lost == sink.emitted);
  if (trace.lost > 0) return;  // a queue that the writer could not empty in time
  CHECK(trace.count<format::Launch>() == done.launches);
  CHECK(trace.count<format::Alloc>() == done.allocs);
  CHECK(trace.count<format::Free>() == done.allocs);
  CHECK(trace.count<format::Sync>() == done.syncs);
  CHECK(trace.count<format::TensorStats>() == done.submitted);
}

}  // namespace
}  // namespace convtrace::engine
