#include <algorithm>

#include "format/file/trace_writer.h"
#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/describe.h"
#include "tests/support/event_generator.h"
#include "tests/support/memory_sink.h"

namespace convtrace {
namespace {

using format::Event;
using reader::TraceReader;
using reader::TraceState;
using test::describe;

struct Written {
  test::SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  format::Definitions definitions;
  std::unique_ptr<format::TraceWriter> writer;

  Written() {
    auto made =
        format::TraceWriter::create(std::make_unique<test::MemorySink>(bytes), {}, definitions);
    REQUIRE(made.ok());
    writer = std::move(made).value();
  }

  std::unique_ptr<TraceReader> read() {
    auto opened = TraceReader::open(std::make_unique<reader::MemorySource>(*bytes));
    REQUIRE(opened.ok());
    return std::move(opened).value();
  }
};

TEST_CASE("trace: events of every kind come back bit for bit and in order",
          "[format][reader][property]") {
  const uint64_t seed = GENERATE(1u, 2u, 3u, 20261121u);
  CAPTURE(seed);
  Written trace;
  test::EventGenerator generator(seed, trace.definitions);
  std::vector<std::string> expected;
  for (uint64_t seq = 0; seq < 3000; ++seq) {
    Event event = seq < 11 ? generator.make(seq) : generator.make();
    REQUIRE(trace.writer->append(event).ok());
    header_of(event).seq = seq;
    expected.push_back(describe(event));
  }
  REQUIRE(trace.writer->close().ok());

  const auto reader = trace.read();
  for (const std::string& one : expected) {
    const Event* event = reader->next();
    REQUIRE(event != nullptr);
    REQUIRE(describe(*event) == one);
  }
  CHECK(reader->next() == nullptr);
  CHECK(reader->state() == TraceState::kComplete);
  CHECK(reader->counts().events == expected.size());
}

}  // namespace
}  // namespace convtrace
