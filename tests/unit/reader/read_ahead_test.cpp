#include "reader/read_ahead.h"

#include <atomic>

#include "sample_trace.h"
#include "tests/support/catch.h"

namespace convtrace {
namespace {

using reader::ReadAhead;

ReadAhead<size_t>::Slots slots(size_t count) {
  ReadAhead<size_t>::Slots made;
  while (made.size() < count) made.push_back(std::make_unique<size_t>(0));
  return made;
}

TEST_CASE("read ahead: items come in order, each filled once, however many threads there are",
          "[reader][threads]") {
  const unsigned threads = GENERATE(1u, 2u, 5u);
  constexpr size_t kItems = 2000;
  std::vector<std::atomic<int>> fills(kItems);
  ReadAhead<size_t> ahead(slots(2 * threads), threads, [&](size_t item, size_t& slot) {
    ++fills[item];
    if (item % 7 == 0) std::this_thread::yield();
    slot = item * 3;
  });
  CHECK(ahead.next() == nullptr);
  ahead.set_count(kItems / 2);
  size_t given = 0;
  for (; const size_t* slot = ahead.next(); ++given) REQUIRE(*slot == given * 3);
  CHECK(given == kItems / 2);
  ahead.set_count(kItems);
  for (; const size_t* slot = ahead.next(); ++given) REQUIRE(*slot == given * 3);
  CHECK(given == kItems);
  for (const auto& count : fills) REQUIRE(count == 1);
}

TEST_CASE("read ahead: nobody works further ahead than the slots reach", "[reader][threads]") {
  constexpr size_t kSlots = 4;
  std::atomic<size_t> highest = 0;
  ReadAhead<size_t> ahead(slots(kSlots), 3, [&](size_t item, size_t&) {
    size_t seen = highest;
    while (seen < item && !highest.compare_exchange_weak(seen, item)) {
    }
  });
  ahead.set_count(1000);
  for (size_t item = 0; ahead.next() != nullptr; ++item) REQUIRE(highest < item + kSlots);
}

TEST_CASE("read ahead: it may be left with work under way", "[reader][threads]") {
  for (int i = 0; i < 50; ++i) {
    ReadAhead<size_t> ahead(slots(6), 3, [](size_t item, size_t& slot) { slot = item; });
    ahead.set_count(1000);
    REQUIRE(*ahead.next() == 0);
  }
}

TEST_CASE("trace reader: any number of threads gives the same events, states and counts",
          "[reader][threads][recovery]") {
  const test::SampleTrace trace = test::make_sample_trace(31, 40, 5);
  std::vector<std::byte> damaged = trace.bytes;
  damaged[trace.records[8].offset + format::kSlotBytes] ^= std::byte{1};
  damaged[trace.records[21].offset + 3] ^= std::byte{1};
  for (const std::vector<std::byte>* bytes :
       {&std::as_const(trace.bytes), &std::as_const(damaged)}) {
    const test::ReadResult one = test::read_all(*bytes);
    for (const unsigned threads : {2u, 3u, 8u}) {
      const auto more = test::read_all(*bytes, reader::OpenPolicy::kIndexOrScan, threads);
      CHECK(more.events == one.events);
      CHECK(more.state == one.state);
      CHECK(more.problems == one.problems);
      CHECK(more.counts.lost_records == one.counts.lost_records);
      CHECK(more.counts.skipped_bytes == one.counts.skipped_bytes);
    }
  }
}

}  // namespace
}  // namespace convtrace
