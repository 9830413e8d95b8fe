#include "reader/trace_check.h"

#include <algorithm>
#include <functional>

#include "format/file/record_codec.h"
#include "sample_trace.h"
#include "tests/support/catch.h"

namespace convtrace {
namespace {

using format::RecordHeader;
using format::RecordKind;
using reader::check_trace;
using reader::MemorySource;
using test::make_sample_trace;
using test::SampleTrace;

using Content = std::vector<std::byte>;

/// @return whether a check of `bytes` names `text` at `offset`.
bool reports(const Content& bytes, uint64_t offset, const std::string& text) {
  const auto check = check_trace(MemorySource(bytes));
  if (!check.ok()) return false;
  const auto& problems = check.value().problems.kept();
  return std::ranges::any_of(problems, [&](const reader::Problem& problem) {
    return problem.offset == offset && problem.text.find(text) != std::string::npos;
  });
}

/// `trace` with the header of record `i` changed and sealed as a writer would.
Content with_header(const SampleTrace& trace, size_t i,
                    const std::function<void(RecordHeader&)>& change) {
  Content bytes = trace.bytes;
  RecordHeader header = trace.records[i].header;
  change(header);
  std::ranges::copy(format::encode(header),
                    bytes.begin() + static_cast<ptrdiff_t>(trace.records[i].offset));
  return bytes;
}

size_t first_of(const SampleTrace& trace, RecordKind kind) {
  const auto found = std::ranges::find_if(
      trace.records, [kind](const auto& record) { return record.header.kind == kind; });
  return static_cast<size_t>(found - trace.records.begin());
}

TEST_CASE("trace check: a good trace has no problem, and one without its end is not closed",
          "[reader]") {
  for (const uint64_t seed : {61u, 62u, 63u}) {
    const SampleTrace trace = make_sample_trace(seed, 6, 9);
    const auto whole = check_trace(MemorySource(trace.bytes));
    REQUIRE(whole.ok());
    CHECK(whole.value().problems.empty());
    CHECK(whole.value().closed);
    CHECK(whole.value().events == trace.events.size());
    CHECK(whole.value().records == trace.records.size());
    Content cut = trace.bytes;
    cut.resize(trace.records[5].offset + 100);
    const auto unclosed = check_trace(MemorySource(cut));
    REQUIRE(unclosed.ok());
    CHECK(unclosed.value().problems.empty());
    CHECK_FALSE(unclosed.value().closed);
    CHECK(unclosed.value().cut_bytes == 100);
    // A kill in the middle of a write may leave a record without the end of its padding.
    cut.resize(trace.records[5].offset - 1);
    const auto padded = check_trace(MemorySource(cut));
    REQUIRE(padded.ok());
    CHECK(padded.value().problems.empty());
    CHECK_FALSE(padded.value().closed);
    CHECK(padded.value().records == 5);
  }
}

TEST_CASE("trace check: any flipped bit is found", "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(64, 2, 4);
  for (size_t bit = 0; bit < trace.bytes.size() * 8; bit += 3) {
    Content bytes = trace.bytes;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const auto check = check_trace(MemorySource(bytes));
    INFO("bit " << bit % 8 << " of byte " << bit / 8);
    REQUIRE((!check.ok() || !check.value().problems.empty()));
  }
}

TEST_CASE("trace check: headers that do not agree with their payload are named", "[reader]") {
  const SampleTrace trace = make_sample_trace(65, 2, 4);
  const size_t chunk = first_of(trace, RecordKind::kEvents);
  const uint64_t at = trace.records[chunk].offset;
  const std::string differ = "differ from the events";
  CHECK(reports(with_header(trace, chunk, [](auto& h) { --h.time_begin_ns; }), at, differ));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { ++h.time_end_ns; }), at, differ));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { ++h.step_end; }), at, differ));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { h.flags ^= format::kFlagUrgent; }), at,
                differ));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { h.flags ^= format::kFlagNotes; }), at,
                differ));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { h.flags ^= format::kFlagFacts; }), at,
                differ));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { ++h.item_count; }), at, "events damaged"));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { h.flags |= 0x80; }), at, "unknown here"));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { h.codec = format::Codec{9}; }), at,
                "unknown here"));
  CHECK(reports(with_header(trace, chunk, [](auto& h) { h.kind = RecordKind{77}; }), at,
                "kind 77 is unknown here"));
  CHECK(reports(with_header(trace, 0, [](auto& h) { h.kind = RecordKind{0x4001}; }),
                trace.records[0].offset, "first record is not META"));
  const size_t index = first_of(trace, RecordKind::kIndex);
  CHECK(reports(with_header(trace, chunk, [](auto& h) { --h.time_begin_ns; }),
                trace.records[index].offset, "entry " + std::to_string(chunk) + " differs"));
}

TEST_CASE("trace check: events that come before their definitions are named", "[reader]") {
  const SampleTrace trace = make_sample_trace(66, 2, 4);
  const size_t defs = first_of(trace, RecordKind::kDefs);
  const size_t chunk = first_of(trace, RecordKind::kEvents);
  REQUIRE(defs < chunk);
  const Content bytes =
      with_header(trace, defs, [](auto& h) { h.flags |= format::kFlagConsolidated; });
  CHECK(reports(bytes, trace.records[chunk].offset, "not defined before them"));
}

TEST_CASE("trace check: a footer and an index that say something else are named", "[reader]") {
  const SampleTrace trace = make_sample_trace(67, 2, 4);
  const uint64_t at = trace.records.back().offset;
  const auto last = format::SlotView(&trace.bytes[at], format::kSlotBytes);
  format::Footer footer = format::decode_footer(last).value();
  SECTION("events") { ++footer.event_count; }
  SECTION("records") { ++footer.record_count; }
  SECTION("data end") { footer.data_end -= format::kSlotBytes; }
  SECTION("index offset") { footer.index_offset += format::kSlotBytes; }
  Content bytes = trace.bytes;
  std::ranges::copy(format::encode(footer), bytes.begin() + static_cast<ptrdiff_t>(at));
  CHECK(reports(bytes, at, "footer does not agree"));
}

TEST_CASE("trace check: what follows the footer is named", "[reader]") {
  SampleTrace trace = make_sample_trace(68, 2, 4);
  const uint64_t end = trace.bytes.size();
  trace.bytes.resize(end + 100);
  CHECK(reports(trace.bytes, end, "after the footer"));
}

}  // namespace
}  // namespace convtrace
