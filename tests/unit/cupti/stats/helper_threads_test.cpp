#include "cupti/stats/cpu/helper_threads.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "cupti/stats/cpu/host_fp.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

TEST_CASE("helper_threads: every turn is taken once, however many helpers there are",
          "[stats][threads]") {
  for (uint32_t helpers = 0; helpers <= HelperThreads::kMost; ++helpers) {
    HelperThreads threads(helpers);
    for (const uint32_t turns : {0u, 1u, 2u, 3u, 64u, 1000u}) {
      CAPTURE(helpers, turns);
      std::vector<std::atomic<int>> taken(turns);
      const auto work = [&](uint32_t turn) { taken[turn].fetch_add(1); };
      for (int i = 0; i < 50; ++i) threads.for_each(turns, work);
      CHECK(std::ranges::all_of(taken, [](const auto& count) { return count == 50; }));
    }
  }
}

TEST_CASE("helper_threads: those that rest are started by the next loop", "[stats][threads]") {
  HelperThreads threads(2);
  CHECK(threads.started() == 0);
  for (int i = 0; i < 20; ++i) {
    std::atomic<uint64_t> sum{0};
    const auto work = [&](uint32_t turn) { sum.fetch_add(turn); };
    threads.for_each(10, work);
    CHECK(sum == 45);
    CHECK(threads.started() == 2);
    threads.rest();
    CHECK(threads.started() == 0);
  }
}

TEST_CASE("helper_threads: while one caller has the helpers another does its loop alone",
          "[stats][threads]") {
  HelperThreads threads(2);
  std::atomic<bool> begun{false}, other_done{false};
  std::thread slow([&] {
    const auto work = [&](uint32_t) {
      begun = true;
      while (!other_done) std::this_thread::yield();
    };
    threads.for_each(10, work);
  });
  while (!begun) std::this_thread::yield();
  uint64_t sum = 0;  // not atomic: nobody helps here
  const auto add = [&](uint32_t turn) { sum += turn; };
  threads.for_each(1000, add);
  other_done = true;
  slow.join();
  CHECK(sum == 499'500);
}

TEST_CASE("helper_threads: many callers at once, every loop whole", "[stats][threads]") {
  HelperThreads threads(2);
  std::atomic<uint64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      const auto work = [&](uint32_t turn) { sum.fetch_add(turn); };
      for (int i = 0; i < 500; ++i) threads.for_each(10, work);
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(sum == 4 * 500 * 45);
}

TEST_CASE("stats: helpers change no bit, whatever the caller's floating-point mode",
          "[stats][threads][same]") {
  HelperThreads threads(3);
  for (const DType dtype : kAllDTypes) {
    for (const uint64_t count : {0u, 1000u, 600'000u, 1'300'001u}) {
      INFO(format::to_string(dtype) << " x " << count);
      const auto bytes = random_bytes(dtype, count, count);
      const TensorView view = view_of(bytes, dtype);
      for (const auto capture : {format::Capture::kStats, format::Capture::kHash}) {
        StatsResult shared;
#if defined(__x86_64__)
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040 | 0x6000);  // flush to zero, toward zero
#endif
        const Status status = compute_on_cpu(view, capture, shared, &threads);
#if defined(__x86_64__)
        _mm_setcsr(before);
#endif
        REQUIRE(status.ok());
        require_same(shared, compute(view, capture));
      }
    }
  }
}

}  // namespace
}  // namespace convtrace::stats::test
