#include "format/file/trace_writer.h"

#include <algorithm>
#include <functional>
#include <random>

#include "format/file/layout.h"
#include "format/file/record_codec.h"
#include "reader/record_scanner.h"
#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"
#include "tests/support/next_event.h"

namespace convtrace::format {
namespace {

/// A trace in memory and its records, found without the reader's index.
struct MemoryTrace {
  test::SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  Definitions definitions;
  std::unique_ptr<TraceWriter> writer;

  explicit MemoryTrace(uint64_t capacity = UINT64_MAX) {
    TraceMeta meta;
    meta.uuid = {9};
    auto made =
        TraceWriter::create(std::make_unique<test::MemorySink>(bytes, capacity), meta, definitions);
    REQUIRE(made.ok());
    writer = std::move(made).value();
  }

  [[nodiscard]] std::vector<RecordHeader> records() const {
    const reader::MemorySource source(*bytes);
    reader::ProblemList problems;
    reader::RecordScanner scanner(source, file_tag_of({9}), problems);
    std::vector<RecordHeader> headers;
    while (const auto entry = scanner.next()) headers.push_back(entry->header);
    REQUIRE(problems.empty());
    return headers;
  }

  [[nodiscard]] std::vector<RecordKind> kinds() const {
    std::vector<RecordKind> kinds;
    for (const RecordHeader& header : records()) kinds.push_back(header.kind);
    return kinds;
  }

  [[nodiscard]] std::unique_ptr<reader::TraceReader> read() const {
    auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(*bytes));
    REQUIRE(opened.ok());
    return std::move(opened).value();
  }
};

Scope scope_event(StringId scope) {
  Scope event;
  event.place.scope = scope;
  return event;
}

Event at(uint64_t t_ns, uint32_t step) {
  Step event;
  event.header.t_ns = t_ns;
  event.header.step = step;
  return event;
}

TEST_CASE("trace writer: definitions precede the events that need them and are stored once",
          "[format]") {
  MemoryTrace trace;
  const StringId a = trace.definitions.intern("a");
  REQUIRE(trace.writer->append(scope_event(a)).ok());
  REQUIRE(trace.writer->flush().ok());
  REQUIRE(trace.writer->append(scope_event(a)).ok());
  REQUIRE(trace.writer->flush().ok());
  REQUIRE(trace.writer->append(scope_event(trace.definitions.intern("b"))).ok());
  REQUIRE(trace.writer->close().ok());
  using enum RecordKind;
  CHECK(trace.kinds() ==
        std::vector{kMeta, kDefs, kEvents, kEvents, kDefs, kEvents, kDefs, kIndex, kFooter});
  const auto records = trace.records();
  CHECK(records[1].item_count == 1);
  CHECK(records[4].item_count == 1);
  CHECK(records[6].item_count == 2);  // consolidated
  CHECK(records[6].flags == kFlagConsolidated);
}

TEST_CASE("trace writer: a record header sums up its chunk", "[format]") {
  MemoryTrace trace;
  for (const Event& event : {at(50, 4), at(10, kNoStep), at(90, 2)})
    REQUIRE(trace.writer->append(event).ok());
  CHECK(trace.writer->open_chunk_age_ns(110) == 100);
  REQUIRE(trace.writer->flush().ok());
  CHECK(trace.writer->open_chunk_age_ns(110) == 0);
  REQUIRE(trace.writer->append(at(5, kNoStep)).ok());
  REQUIRE(trace.writer->flush().ok());
  const auto records = trace.records();
  REQUIRE(records.size() == 3);
  CHECK(records[1].item_count == 3);
  CHECK(records[1].time_begin_ns == 10);
  CHECK(records[1].time_end_ns == 90);
  CHECK(records[1].step_begin == 2);
  CHECK(records[1].step_end == 4);
  CHECK(records[2].step_begin == kNoStep);
  CHECK(records[2].step_end == kNoStep);
}

TEST_CASE("trace writer: an error finding is stored at once and marked", "[format]") {
  MemoryTrace trace;
  Finding finding;
  finding.level = Level::kWarning;
  REQUIRE(trace.writer->append(finding).ok());
  CHECK(trace.records().size() == 1);
  finding.level = Level::kError;
  REQUIRE(trace.writer->append(finding).ok());
  const auto records = trace.records();
  REQUIRE(records.size() == 2);
  CHECK(records[1].flags == (kFlagUrgent | kFlagNotes));
  CHECK(records[1].item_count == 2);
}

TEST_CASE("trace writer: a chunk is marked for a finding, a loss or a fact in it", "[format]") {
  const auto flags_with = [](const Event& event) {
    MemoryTrace trace;
    REQUIRE(trace.writer->append(Step{}).ok());
    REQUIRE(trace.writer->flush().ok());
    REQUIRE(trace.writer->append(event).ok());
    REQUIRE(trace.writer->flush().ok());
    const auto records = trace.records();
    CHECK(records[1].flags == 0);
    return records.back().flags;
  };
  CHECK(flags_with(Loss{}) == kFlagNotes);
  CHECK(flags_with(Finding{}) == kFlagNotes);  // a warning
  CHECK(flags_with(Fact{}) == kFlagFacts);
  CHECK(flags_with(Diagnostic{}) == 0);
}

/// Stores `count` of what `make` makes. @return the headers of the EVENTS records but the last.
std::vector<RecordHeader> full_chunks(size_t count, const std::function<Event(size_t)>& make) {
  MemoryTrace trace;
  for (size_t i = 0; i < count; ++i) REQUIRE(trace.writer->append(make(i)).ok());
  REQUIRE(trace.writer->flush().ok());
  auto records = trace.records();
  std::erase_if(records, [](const auto& r) { return r.kind != RecordKind::kEvents; });
  REQUIRE(records.size() > 1);
  records.pop_back();
  return records;
}

TEST_CASE("trace writer: a chunk closes at 256 KiB", "[format][limits]") {
  std::mt19937_64 random(2);
  Copy copy;
  for (const RecordHeader& record : full_chunks(40000, [&](size_t) {
         copy.destination = random();
         return copy;
       })) {
    CHECK(record.raw_size >= kChunkCloseBytes);
    CHECK(record.raw_size < kChunkCloseBytes + 8192);
  }
}

TEST_CASE("trace writer: a chunk closes at 65536 events and at a million operands",
          "[format][limits]") {
  for (const RecordHeader& record :
       full_chunks(kMaxChunkEvents + 1, [](size_t) { return at(1, 1); })) {
    CHECK(record.item_count == kMaxChunkEvents);
  }
  const std::vector<Operand> operands(kMaxOperands);
  Launch launch;
  launch.operands = operands;
  for (const RecordHeader& record : full_chunks(300, [&](size_t) { return launch; }))
    CHECK(record.item_count == kMaxChunkOperands / kMaxOperands);
}

TEST_CASE("trace writer: steps that repeat cost little more than their times", "[format]") {
  MemoryTrace trace;
  uint64_t generation = 0, t_ns = 0;
  for (uint32_t step = 0; step < 50; ++step) {
    for (uint32_t i = 0; i < 100; ++i) {
      Alloc alloc;
      alloc.header = {.t_ns = t_ns += 10, .step = step};
      alloc.address = 0x7f0000000000 + i * 4096;
      alloc.bytes = 512 * (i + 1);
      alloc.generation = ++generation;
      REQUIRE(trace.writer->append(alloc).ok());
      // A parameter and a buffer of this step: it moves, and yet is foreseen.
      const Operand operands[] = {{.param = 0, .address = 0x1000, .generation = 1},
                                  {.param = 1, .address = alloc.address, .generation = generation}};
      Launch launch;
      launch.header = {.t_ns = t_ns += 10, .step = step};
      launch.grid[0] = i + 1;
      launch.operands = operands;
      REQUIRE(trace.writer->append(launch).ok());
    }
  }
  REQUIRE(trace.writer->flush().ok());
  const RecordHeader chunk = trace.records().back();
  CHECK(chunk.item_count == 10000);
  CHECK(chunk.raw_size < 4 * chunk.item_count);  // kind and time alone are a byte each
}

TEST_CASE("trace writer: events up to the size limit are stored, larger ones become a loss",
          "[format][limits]") {
  MemoryTrace trace;
  const std::vector<std::byte> large(kMaxEventBytes + 1);
  TensorStats event;
  event.leading = std::span(large).first(kMaxEventBytes - 1);
  REQUIRE(trace.writer->append(event).ok());
  event.leading = std::span(large).first(kMaxEventBytes);
  REQUIRE(trace.writer->append(event).ok());
  event.leading = large;
  REQUIRE(trace.writer->append(event).ok());
  const std::vector<uint64_t> words(kMaxRanges + 1);
  event.leading = {};
  event.has_shape = true;
  event.shape = std::span(words).first(kMaxDims + 1);
  REQUIRE(trace.writer->append(event).ok());
  event.shape = {};
  event.range_hashes = words;
  REQUIRE(trace.writer->append(event).ok());
  const std::vector<Operand> operands(kMaxOperands + 1);
  Launch launch;
  launch.operands = std::span(operands).first(kMaxOperands);
  REQUIRE(trace.writer->append(launch).ok());
  launch.operands = operands;
  REQUIRE(trace.writer->append(launch).ok());
  REQUIRE(trace.writer->close().ok());

  const auto reader = trace.read();
  const auto check_loss = [&] {
    const auto loss = std::get<Loss>(test::next_of(*reader));
    CHECK(loss.reason == LossReason::kRecordTooLarge);
    CHECK(loss.count == 1);
  };
  CHECK(std::get<TensorStats>(test::next_of(*reader)).leading.size() == kMaxEventBytes - 1);
  CHECK(std::get<TensorStats>(test::next_of(*reader)).leading.size() == kMaxEventBytes);
  for (int i = 0; i < 3; ++i) check_loss();
  CHECK(std::get<Launch>(test::next_of(*reader)).operands.size() == kMaxOperands);
  check_loss();
  CHECK(reader->next() == nullptr);
  CHECK(reader->state() == reader::TraceState::kComplete);
}

TEST_CASE("trace writer: messages beyond the limit are cut", "[format][limits]") {
  MemoryTrace trace;
  const std::string text(kMaxStringBytes + 1, 'm');
  Diagnostic event;
  event.message = text;
  REQUIRE(trace.writer->append(event).ok());
  REQUIRE(trace.writer->close().ok());
  const auto reader = trace.read();
  CHECK(std::get<Diagnostic>(test::next_of(*reader)).message.size() == kMaxStringBytes);
}

TEST_CASE("trace writer: payloads that do not shrink are stored as they are", "[format]") {
  MemoryTrace trace;
  std::mt19937_64 random(3);
  std::vector<std::byte> noise(100'000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  TensorStats event;
  event.leading = noise;
  REQUIRE(trace.writer->append(event).ok());
  REQUIRE(trace.writer->close().ok());
  const auto records = trace.records();
  CHECK(records[1].codec == Codec::kNone);
  CHECK(records[1].stored_size == records[1].raw_size);
  const auto reader = trace.read();
  CHECK(std::ranges::equal(std::get<TensorStats>(test::next_of(*reader)).leading, noise));
}

TEST_CASE("trace writer: the first failure is the answer ever after", "[format][faults]") {
  MemoryTrace trace(1000);
  Status status;
  while (status.ok()) {
    REQUIRE(trace.writer->append(at(1, 1)).ok());
    status = trace.writer->flush();
  }
  CHECK(status.code == StatusCode::kNoSpace);
  const size_t size = trace.bytes->size();
  CHECK(trace.writer->append(at(1, 1)).code == StatusCode::kNoSpace);
  CHECK(trace.writer->close().code == StatusCode::kNoSpace);
  CHECK(trace.writer->status().code == StatusCode::kNoSpace);
  CHECK(trace.bytes->size() == size);
}

TEST_CASE("trace writer: META may be repeated and later values win", "[format]") {
  MemoryTrace trace;
  TraceMeta meta;
  meta.facts = {{"version.python", "3.11"}, {"version.torch", "?"}};
  REQUIRE(trace.writer->append_meta(meta).ok());
  meta.facts = {{"device.0", "H100"}, {"version.torch", "2.13"}};
  meta.host = "node1";
  REQUIRE(trace.writer->append_meta(meta).ok());
  REQUIRE(trace.writer->close().ok());
  const auto reader = trace.read();
  const decltype(meta.facts) expected = {
      {"device.0", "H100"}, {"version.python", "3.11"}, {"version.torch", "2.13"}};
  CHECK(reader->meta().facts == expected);
  CHECK(reader->meta().host == "node1");
  CHECK(reader->meta().uuid[0] == 9);
}

TEST_CASE("trace writer: uuid and clocks are filled in when they are not given", "[format]") {
  const auto uuid_of_new = [] {
    const auto bytes = std::make_shared<std::vector<std::byte>>();
    const Definitions definitions;
    auto writer = TraceWriter::create(std::make_unique<test::MemorySink>(bytes), {}, definitions);
    REQUIRE(writer.ok());
    auto reader = reader::TraceReader::open(std::make_unique<reader::MemorySource>(*bytes));
    REQUIRE(reader.ok());
    CHECK(reader.value()->meta().start_realtime_ns > 1'600'000'000'000'000'000);
    CHECK(reader.value()->meta().start_monotonic_ns > 0);
    return reader.value()->meta().uuid;
  };
  CHECK(uuid_of_new() != uuid_of_new());
}

TEST_CASE("trace writer: an index of more records than one INDEX holds is read back",
          "[format][limits]") {
  MemoryTrace trace;
  for (uint32_t i = 0; i < kMaxIndexEntries; ++i) {
    (void)trace.writer->append(at(i, i));
    REQUIRE(trace.writer->flush().ok());
  }
  REQUIRE(trace.writer->close().ok());
  CHECK(std::ranges::count(trace.kinds(), RecordKind::kIndex) == 2);
  const auto reader = reader::TraceReader::open(
      std::make_unique<reader::MemorySource>(*trace.bytes), reader::OpenPolicy::kIndexOnly);
  REQUIRE(reader.ok());
  CHECK(reader.value()->counts().events == kMaxIndexEntries);
}

}  // namespace
}  // namespace convtrace::format
