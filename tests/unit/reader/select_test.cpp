// A reader that is asked for some kinds of events gives exactly those, as it gives them among all.

#include <random>

#include "sample_trace.h"
#include "tests/support/catch.h"
#include "tests/support/describe.h"

namespace {

using namespace convtrace;
using reader::KindSet;

struct Read {
  std::vector<std::string> events;
  reader::TraceState state = reader::TraceState::kDamaged;
};

Read read_selected(const std::vector<std::byte>& bytes,
                   const std::function<KindSet(const format::RecordHeader&)>& wanted,
                   unsigned threads) {
  auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(bytes),
                                          reader::OpenPolicy::kIndexOrScan, threads);
  REQUIRE(opened.ok());
  reader::TraceReader& trace = *opened.value();
  trace.select(wanted);
  Read read;
  while (const format::Event* event = trace.next()) read.events.push_back(test::describe(*event));
  read.state = trace.state();
  return read;
}

std::vector<std::string> of_kinds(const std::vector<std::byte>& bytes, KindSet kinds) {
  auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(bytes));
  REQUIRE(opened.ok());
  std::vector<std::string> events;
  while (const format::Event* event = opened.value()->next()) {
    if ((kinds >> event->index() & 1) != 0) events.push_back(test::describe(*event));
  }
  return events;
}

}  // namespace

TEST_CASE("select: events of any kinds are as they are among all", "[reader]") {
  const unsigned threads = GENERATE(1u, 3u);
  const test::SampleTrace trace = test::make_sample_trace(11, 4, 700);
  std::mt19937 random(5);
  for (int i = 0; i < 40; ++i) {
    const KindSet kinds = i == 0   ? reader::kNoKinds
                          : i == 1 ? reader::kAllKinds
                                   : random() & reader::kAllKinds;
    const Read read = read_selected(
        trace.bytes, [&](const auto&) { return kinds; }, threads);
    CAPTURE(kinds);
    CHECK(read.events == of_kinds(trace.bytes, kinds));
    CHECK(read.state == reader::TraceState::kComplete);
  }
}

TEST_CASE("select: damage in a chunk that is not wanted is found where checksums are verified",
          "[reader]") {
  const unsigned threads = GENERATE(1u, 3u);
  test::SampleTrace trace = test::make_sample_trace(13, 4, 100);
  const auto open = [&] {
    return reader::TraceReader::open(std::make_unique<reader::MemorySource>(trace.bytes),
                                     reader::OpenPolicy::kIndexOrScan, threads);
  };
  auto whole = open();
  REQUIRE(whole.ok());
  const auto& records = whole.value()->container().records();
  const auto chunk = std::ranges::find(records, format::RecordKind::kEvents,
                                       [](const auto& record) { return record.header.kind; });
  REQUIRE(chunk != records.end());
  trace.bytes[chunk->offset + format::kSlotBytes + chunk->header.stored_size / 2] ^= std::byte{1};
  for (const reader::Unwanted unwanted : {reader::Unwanted::kSkip, reader::Unwanted::kCheck}) {
    auto opened = open();
    REQUIRE(opened.ok());
    reader::TraceReader& damaged = *opened.value();
    damaged.select([](const auto&) { return reader::kNoKinds; }, unwanted);
    CHECK(damaged.next() == nullptr);
    const bool checked = unwanted == reader::Unwanted::kCheck;
    CHECK((damaged.state() == reader::TraceState::kDamaged) == checked);
    CHECK(damaged.counts().lost_records == (checked ? 1 : 0));
  }
}

TEST_CASE("select: each chunk is asked for", "[reader]") {
  const test::SampleTrace trace = test::make_sample_trace(12, 4, 100);
  int asked = 0;
  const Read read = read_selected(
      trace.bytes,
      [&](const format::RecordHeader& header) {
        CHECK(header.kind == format::RecordKind::kEvents);
        return header.item_count > 0 && asked++ < 2 ? reader::kNoKinds : reader::kAllKinds;
      },
      1);
  CHECK(asked >= 4);
  CHECK_FALSE(read.events.empty());
  CHECK(read.events.size() < trace.events.size());
}
