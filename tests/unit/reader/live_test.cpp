// Traces that are being written: FORMAT.md section 7, "Reading a file that grows".

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "format/file/file_sink.h"
#include "format/file/record_codec.h"
#include "format/file/trace_writer.h"
#include "reader/trace_reader.h"
#include "sample_trace.h"
#include "tests/support/catch.h"
#include "tests/support/describe.h"
#include "tests/support/event_generator.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

using reader::OpenPolicy;
using reader::TraceReader;
using reader::TraceState;
using test::SampleTrace;

/// The first bytes of a trace; the test says how many there are, and how many of them are written.
struct Growth {
  std::vector<std::byte> bytes;
  size_t size = 0;
  size_t written = 0;  ///< what is beyond reads as zeros
};

class GrowingSource final : public reader::ByteSource {
 public:
  explicit GrowingSource(const Growth& growth) : growth_(growth) { refresh(); }
  [[nodiscard]] uint64_t size() const noexcept override { return size_; }
  void refresh() noexcept override { size_ = growth_.size; }
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> to) const noexcept override {
    if (offset > size_ || to.size() > size_ - offset)
      return Status::make(StatusCode::kTruncated, "read");
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = offset + i < growth_.written ? growth_.bytes[offset + i] : std::byte{0};
    return kOkStatus;
  }

 private:
  const Growth& growth_;
  uint64_t size_ = 0;
};

struct Live {
  Growth growth;
  std::unique_ptr<TraceReader> reader;
  std::vector<std::string> events;

  explicit Live(const std::vector<std::byte>& bytes)
      : growth{bytes, format::kSlotBytes, format::kSlotBytes} {
    auto opened = TraceReader::open(std::make_unique<GrowingSource>(growth), OpenPolicy::kLive);
    REQUIRE(opened.ok());
    reader = std::move(opened).value();
  }
  void take(size_t size, size_t written, bool ended = false) {
    growth.size = size;
    growth.written = written;
    reader->refresh(ended);
    while (const format::Event* event = reader->next()) events.push_back(test::describe(*event));
  }
};

size_t events_within(const SampleTrace& trace, size_t size) {
  size_t events = 0;
  for (const auto& [offset, header] : trace.records) {
    if (header.kind != format::RecordKind::kEvents) continue;
    if (offset + format::kSlotBytes + header.stored_size <= size) events += header.item_count;
  }
  return events;
}

TEST_CASE("live trace: grown byte by byte, each event comes once and as soon as it is whole",
          "[reader][live]") {
  const SampleTrace trace = test::make_sample_trace(41, 4, 5);
  Live live(trace.bytes);
  for (size_t size = format::kSlotBytes; size <= trace.bytes.size(); ++size) {
    live.take(size, size);
    INFO("size " << size);
    REQUIRE(live.events.size() == events_within(trace, size));
    REQUIRE(live.reader->state() ==
            (size < trace.bytes.size() ? TraceState::kUnclosed : TraceState::kComplete));
  }
  live.take(trace.bytes.size(), trace.bytes.size(), true);
  CHECK(live.events == trace.events);
  CHECK(live.reader->state() == TraceState::kComplete);
  CHECK(live.reader->meta().uuid[0] == 0xC0);
}

TEST_CASE("live trace: a size that is seen before its bytes is waited for", "[reader][live]") {
  const SampleTrace trace = test::make_sample_trace(42, 3, 5);
  Live live(trace.bytes);
  for (const auto& [offset, header] : trace.records) {
    const size_t end = offset + format::record_extent(header);
    for (const size_t written : {offset, offset + 30, offset + format::kSlotBytes, end - 70}) {
      live.take(end, std::max<size_t>(written, offset));
      REQUIRE(live.reader->problems().empty());
      REQUIRE(live.events.size() <= events_within(trace, end));
    }
    live.take(end, end);
    REQUIRE(live.events.size() == events_within(trace, end));
  }
  CHECK(live.reader->state() == TraceState::kComplete);
}

TEST_CASE("live trace: when nobody writes any more, what is left is judged as in any file",
          "[reader][live][recovery]") {
  const SampleTrace trace = test::make_sample_trace(43, 3, 5);
  const auto& chunk = trace.records[4];
  REQUIRE(chunk.header.kind == format::RecordKind::kEvents);
  const size_t end = chunk.offset + format::record_extent(chunk.header);
  SECTION("a cut record: unclosed") {
    Live live(trace.bytes);
    live.take(end - 70, end - 70, true);
    CHECK(live.reader->state() == TraceState::kUnclosed);
    CHECK(live.reader->counts().cut_bytes == end - 70 - chunk.offset);
    CHECK(live.events.size() == events_within(trace, end - 70));
  }
  SECTION("a payload that never came: damaged") {
    Live live(trace.bytes);
    live.take(end, end - 70);
    CHECK(live.reader->state() == TraceState::kUnclosed);
    live.take(end, end - 70, true);
    CHECK(live.reader->state() == TraceState::kDamaged);
    CHECK(live.reader->counts().lost_records == 1);
  }
  SECTION("a record after a damaged one: damaged at once, and reading goes on") {
    std::vector<std::byte> bytes = trace.bytes;
    bytes[chunk.offset + 20] ^= std::byte{1};
    Live live(bytes);
    live.take(bytes.size(), bytes.size());
    CHECK(live.reader->state() == TraceState::kDamaged);
    CHECK(live.events.size() == trace.events.size() - chunk.header.item_count);
  }
}

constexpr uint64_t kEvents = 4000;

/// Writes kEvents random events of `seed`, slowly enough to be watched.
int write_slowly(const std::string& path, uint64_t seed) {
  auto sink = format::FileSink::create(path.c_str());
  format::Definitions definitions;
  if (!sink.ok()) return 1;
  auto writer = format::TraceWriter::create(std::move(sink).value(), {}, definitions);
  test::EventGenerator generator(seed, definitions);
  for (uint64_t i = 0; i < kEvents; ++i) {
    if (!writer.value()->append(generator.make()).ok()) return 1;
    if (i % 50 != 0) continue;
    if (!writer.value()->flush().ok()) return 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return writer.value()->close().ok() ? 0 : 1;
}

std::vector<std::string> read_until_closed(const std::string& path) {
  std::vector<std::string> events;
  auto opened = TraceReader::open(path, OpenPolicy::kLive);
  if (!opened.ok()) return {"not opened"};
  TraceReader& trace = *opened.value();
  for (bool closed = false; !closed;) {
    closed = trace.state() == TraceState::kComplete;
    trace.refresh(closed);
    while (const format::Event* event = trace.next()) events.push_back(test::describe(*event));
    if (trace.state() == TraceState::kDamaged) return {"damaged"};
  }
  return events;
}

TEST_CASE("live trace: two readers of a file that a process writes see every event once",
          "[reader][live][threads]") {
  constexpr uint64_t kSeed = 44;
  const test::TempDir folder;
  const std::string path = folder / "live.ctrace";
  const pid_t writer = fork();
  if (writer == 0) _exit(write_slowly(path, kSeed));
  while (!std::filesystem::exists(path) || std::filesystem::file_size(path) < 64)
    std::this_thread::yield();
  std::vector<std::string> seen[2];
  {
    std::jthread first([&] { seen[0] = read_until_closed(path); });
    std::jthread second([&] { seen[1] = read_until_closed(path); });
  }
  int status = -1;
  REQUIRE(waitpid(writer, &status, 0) == writer);
  REQUIRE(status == 0);
  format::Definitions definitions;
  test::EventGenerator generator(kSeed, definitions);
  std::vector<std::string> expected;
  for (uint64_t seq = 0; seq < kEvents; ++seq) {
    format::Event event = generator.make();
    header_of(event).seq = seq;
    expected.push_back(test::describe(event));
  }
  CHECK(seen[0] == expected);
  CHECK(seen[1] == expected);
}

}  // namespace
}  // namespace convtrace
