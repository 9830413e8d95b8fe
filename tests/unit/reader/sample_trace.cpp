#include "sample_trace.h"

#include "format/file/trace_writer.h"
#include "reader/record_scanner.h"
#include "tests/support/catch.h"
#include "tests/support/describe.h"
#include "tests/support/event_generator.h"
#include "tests/support/memory_sink.h"

namespace convtrace::test {

using namespace format;

SampleTrace make_sample_trace(uint64_t seed, int chunks, int events_per_chunk) {
  SampleTrace sample;
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  Definitions definitions;
  EventGenerator generator(seed, definitions);
  TraceMeta meta;
  meta.uuid = {0xC0, 0xFF, 0xEE};
  meta.start_realtime_ns = meta.start_monotonic_ns = 1;
  auto writer = TraceWriter::create(std::make_unique<MemorySink>(bytes), meta, definitions);
  REQUIRE(writer.ok());
  for (int chunk = 0; chunk < chunks; ++chunk) {
    Scope own;
    own.place.scope = definitions.intern("only in chunk " + std::to_string(chunk));
    for (int i = 0; i < events_per_chunk; ++i) {
      Event event = i == 0 ? Event(own) : generator.make();
      REQUIRE(writer.value()->append(event).ok());
      header_of(event).seq = sample.events.size();
      sample.events.push_back(describe(event));
    }
    REQUIRE(writer.value()->flush().ok());
  }
  REQUIRE(writer.value()->close().ok());
  sample.bytes = *bytes;

  const reader::MemorySource source(sample.bytes);
  reader::ProblemList problems;
  reader::RecordScanner scanner(source, file_tag_of(meta.uuid), problems);
  uint64_t seq = 0;
  while (const auto entry = scanner.next()) {
    sample.records.push_back(*entry);
    sample.first_seq.push_back(seq);
    if (entry->header.kind == RecordKind::kEvents) seq += entry->header.item_count;
  }
  REQUIRE(problems.empty());
  REQUIRE(seq == sample.events.size());
  return sample;
}

ReadResult read_all(std::vector<std::byte> bytes, reader::OpenPolicy policy, unsigned threads) {
  return read_all(std::make_unique<reader::MemorySource>(std::move(bytes)), policy, threads);
}

ReadResult read_all(std::unique_ptr<reader::ByteSource> source, reader::OpenPolicy policy,
                    unsigned threads) {
  ReadResult result;
  auto opened = reader::TraceReader::open(std::move(source), policy, threads);
  result.opened = opened.status();
  if (!opened.ok()) return result;
  reader::TraceReader& reader = *opened.value();
  while (const Event* event = reader.next()) result.events.push_back(describe(*event));
  result.state = reader.state();
  result.without_definition = reader.events_without_definition();
  result.counts = reader.counts();
  result.problems = reader.problems().size();
  return result;
}

}  // namespace convtrace::test
