// Many threads in all of cupti/ at once. Its worth is in the sanitizers' builds.

#include <array>
#include <atomic>

#include "tests/unit/cupti/stress_crew.h"

namespace convtrace::cupti {
namespace {

/// Counts, and keeps nothing.
class CountingSink final : public format::EventSink {
 public:
  void emit(const format::Event& event) noexcept override {
    counts_[event.index()].fetch_add(1, std::memory_order_relaxed);
    if (const auto* launch = std::get_if<format::Launch>(&event))
      operands_.fetch_add(launch->operands.size(), std::memory_order_relaxed);
    if (const auto* loss = std::get_if<format::Loss>(&event))
      last_loss_ = static_cast<int>(loss->reason);
  }
  template <typename Kind>
  [[nodiscard]] uint64_t count() const {
    return counts_[format::Event(Kind{}).index()].load();
  }
  [[nodiscard]] int last_loss() const { return last_loss_.load(); }  ///< -1: none
  [[nodiscard]] uint64_t operands() const { return operands_.load(); }

 private:
  std::array<std::atomic<uint64_t>, std::variant_size_v<format::Event>> counts_{};
  std::atomic<uint64_t> operands_{0};
  std::atomic<int> last_loss_{-1};
};

TEST_CASE("stress: nothing that 16 threads do is lost or counted twice") {
  CountingSink sink;
  format::Definitions definitions;
  StressRun stress(sink, definitions);
  stress.run();
  const Done& done = stress.done;
  CAPTURE(sink.last_loss());
  CHECK(done.failures == 0);
  CHECK(sink.count<format::Launch>() == done.launches);
  CHECK(sink.operands() == done.launches - static_cast<uint64_t>(StressRun::kThreads *
                                                                 stress.rounds));  // not of graphs
  CHECK(sink.count<format::Alloc>() == done.allocs);
  CHECK(sink.count<format::Free>() == done.allocs);
  CHECK(sink.count<format::Sync>() == done.syncs);
  CHECK(done.submitted > 0);
  CHECK(sink.count<format::TensorStats>() == done.submitted);
  CHECK(sink.count<format::Loss>() == 0);
  CHECK(sink.count<format::Diagnostic>() == 0);
  CHECK(stress.addresses.live_count() == 0);
}

}  // namespace
}  // namespace convtrace::cupti
