// What `convtrace recover` makes of damaged traces: FORMAT.md section 7, "Recovering".

#include "tools/cli/rewrite/recovery.h"

#include <algorithm>
#include <random>

#include "format/file/event_encoder.h"
#include "format/file/metadata_encoder.h"
#include "format/file/record_codec.h"
#include "format/file/record_writer.h"
#include "format/file/trace_writer.h"
#include "format/values/part_encoder.h"
#include "reader/snapshots.h"
#include "reader/trace_check.h"
#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"
#include "tests/unit/reader/sample_trace.h"

namespace convtrace::test {
namespace {

using format::RecordKind;
using reader::MemorySource;
using reader::OpenPolicy;
using reader::TraceContainer;
using reader::TraceState;

using Content = std::vector<std::byte>;

struct Outcome {
  tools::Recovered report;
  TraceState input_state = TraceState::kDamaged;
  Content bytes;
  ReadResult read;  ///< of the new trace
};

Outcome recover(const Content& bytes, OpenPolicy policy = OpenPolicy::kIndexOrScan) {
  auto opened = TraceContainer::open(std::make_unique<MemorySource>(bytes), policy);
  REQUIRE(opened.ok());
  const SharedBytes written = std::make_shared<Content>();
  const auto report = tools::recover(*opened.value(), std::make_unique<MemorySink>(written), 2);
  REQUIRE(report.ok());
  Outcome outcome{report.value(),
                  opened.value()->state(report.value().events_without_definition),
                  *written,
                  {}};
  outcome.read = read_all(*written);
  return outcome;
}

/// Whatever went in, what comes out is a trace by every rule.
void require_clean(const Outcome& outcome) {
  REQUIRE(outcome.read.state == TraceState::kComplete);
  const auto check = reader::check_trace(MemorySource(outcome.bytes));
  REQUIRE(check.ok());
  for (const reader::Problem& problem : check.value().problems.kept())
    FAIL("offset " << problem.offset << ": " << problem.text);
  REQUIRE(check.value().closed);
  REQUIRE(outcome.report.bytes == outcome.bytes.size());
}

bool is_subsequence(const std::vector<std::string>& events, const std::vector<std::string>& of) {
  auto from = of.begin();
  for (const std::string& event : events) {
    from = std::find(from, of.end(), event);
    if (from == of.end()) return false;
    ++from;
  }
  return true;
}

TEST_CASE("recover: stored values that can be decoded are kept", "[recover][snapshot]") {
  const SharedBytes bytes = std::make_shared<Content>();
  const format::Definitions definitions;
  auto made = format::TraceWriter::create(std::make_unique<MemorySink>(bytes), {}, definitions);
  REQUIRE(made.ok());
  format::PartEncoder encoder;
  for (uint64_t hash = 1; hash <= 3; ++hash) {
    format::BlobHeader header;
    header.content = {hash, 4096};
    const auto payload = encoder.encode(header, Content(4096, static_cast<std::byte>(hash)), {});
    REQUIRE(payload.ok());
    if (hash == 2) {
      Content wrong(payload.value().begin(), payload.value().end());
      wrong.back() ^= std::byte{1};
      REQUIRE(made.value()->append_blob(wrong).ok());
    } else {
      REQUIRE(made.value()->append_blob(payload.value()).ok());
    }
  }
  const Outcome outcome = recover(*bytes);
  require_clean(outcome);
  CHECK(outcome.input_state == TraceState::kDamaged);
  const auto again =
      TraceContainer::open(std::make_unique<MemorySource>(outcome.bytes), OpenPolicy::kIndexOnly);
  REQUIRE(again.ok());
  const reader::Snapshots values(again.value()->source(), again.value()->records());
  CHECK(values.has({1, 4096}));
  CHECK_FALSE(values.has({2, 4096}));
  CHECK(values.has({3, 4096}));
}

/// @return which records hold events: the chunks asked for, and those cut short by an urgent event.
std::vector<size_t> chunks_of(const SampleTrace& trace) {
  std::vector<size_t> chunks;
  for (size_t i = 0; i < trace.records.size(); ++i) {
    if (trace.records[i].header.kind == RecordKind::kEvents) chunks.push_back(i);
  }
  return chunks;
}

}  // namespace

TEST_CASE("recovery: an intact trace comes out whole, as another file of the same run",
          "[recover]") {
  const SampleTrace trace = make_sample_trace(51, 5, 8);
  const Outcome first = recover(trace.bytes);
  require_clean(first);
  CHECK(first.input_state == TraceState::kComplete);
  CHECK(first.read.events == trace.events);
  CHECK(first.report.events == trace.events.size());
  CHECK(first.report.chunks == chunks_of(trace).size());
  CHECK(first.report.missing_events == 0);

  const Outcome second = recover(first.bytes);
  require_clean(second);
  CHECK(second.read.events == trace.events);
  const auto opened = reader::TraceReader::open(std::make_unique<MemorySource>(second.bytes));
  const format::TraceMeta& meta = opened.value()->meta();
  CHECK(meta.uuid[0] != 0xC0);
  CHECK(meta.start_realtime_ns == 1);
  REQUIRE(meta.facts.size() == 1);  // of the file it was made from, not of that one's origin too
  CHECK(meta.facts[0].first == "recovered.from");
  CHECK(meta.facts[0].second.size() == 32);
}

TEST_CASE("recovery: a trace cut anywhere keeps every whole chunk", "[recover]") {
  const SampleTrace trace = make_sample_trace(52, 4, 6);
  for (size_t size = format::kSlotBytes; size < trace.bytes.size(); size += 37) {
    INFO("cut at " << size);
    const Content bytes(trace.bytes.begin(), trace.bytes.begin() + static_cast<ptrdiff_t>(size));
    const Outcome outcome = recover(bytes);
    require_clean(outcome);
    REQUIRE(outcome.input_state == TraceState::kUnclosed);
    REQUIRE(outcome.read.events == read_all(bytes).events);
  }
}

TEST_CASE(
    "recovery: after one flipped bit all that can be read is there, and what is missing is "
    "a Loss in its place",
    "[recover]") {
  const SampleTrace trace = make_sample_trace(53, 4, 6);
  const OpenPolicy policy = GENERATE(OpenPolicy::kIndexOrScan, OpenPolicy::kScan);
  for (size_t at = 10; at < trace.bytes.size(); at += 5) {
    INFO("bit " << at % 8 << " of byte " << at << ", policy " << static_cast<int>(policy));
    Content bytes = trace.bytes;
    bytes[at] ^= static_cast<std::byte>(1u << (at % 8));
    const ReadResult damaged = read_all(bytes, policy);
    const Outcome outcome = recover(bytes, policy);
    require_clean(outcome);
    REQUIRE(outcome.report.events == damaged.events.size());
    REQUIRE(outcome.report.events_without_definition == damaged.without_definition);
    if (damaged.without_definition > 0) continue;
    REQUIRE(is_subsequence(damaged.events, outcome.read.events));
    const bool missing = outcome.report.missing_events > 0;
    REQUIRE(outcome.read.events.size() == damaged.events.size() + (missing ? 1 : 0));
    REQUIRE(outcome.report.events + outcome.report.missing_events <= trace.events.size());
  }
}

TEST_CASE("recovery: events of lost chunks are counted by their numbers", "[recover]") {
  const SampleTrace trace = make_sample_trace(54, 6, 7);
  const std::vector<size_t> chunks = chunks_of(trace);
  const auto check = [&](const std::vector<size_t>& which, size_t at) {
    Content bytes = trace.bytes;
    uint64_t lost = 0;
    for (const size_t i : which) {
      bytes[trace.records[chunks[i]].offset + at] ^= std::byte{1};
      lost += trace.records[chunks[i]].header.item_count;
    }
    const Outcome outcome = recover(bytes, OpenPolicy::kScan);
    require_clean(outcome);
    CHECK(outcome.report.missing_events == lost);
    CHECK(outcome.report.events == trace.events.size() - lost);
  };
  const size_t header = 20, payload = format::kSlotBytes, last = chunks.size() - 1;
  REQUIRE(last > 4);
  check({1}, header);
  check({0, 1, 3}, header);
  check({0, 2}, payload);
  check({last - 1, last}, payload);
}

TEST_CASE("recovery: events whose definition is gone are left out and counted", "[recover]") {
  const SampleTrace trace = make_sample_trace(55, 3, 8);
  const auto& defs = trace.records[3];
  REQUIRE(defs.header.kind == RecordKind::kDefs);
  const auto& consolidated = *std::ranges::find(trace.records, format::kFlagConsolidated,
                                                [](const auto& r) { return r.header.flags; });
  REQUIRE(consolidated.header.kind == RecordKind::kDefs);
  Content bytes(trace.bytes.begin(),
                trace.bytes.begin() + static_cast<ptrdiff_t>(consolidated.offset));
  bytes[defs.offset + format::kSlotBytes + 3] ^= std::byte{4};
  const ReadResult damaged = read_all(bytes);
  const Outcome outcome = recover(bytes);
  require_clean(outcome);
  CHECK(outcome.input_state == TraceState::kDamaged);
  CHECK(outcome.report.events_without_definition == damaged.without_definition);
  CHECK(outcome.report.events == damaged.events.size());
  CHECK(outcome.report.missing_events == 0);
  CHECK(outcome.report.events + outcome.report.events_without_definition == trace.events.size());
}

TEST_CASE("recovery: noise, zeros and cuts in one file", "[recover][property]") {
  const uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  const SampleTrace trace = make_sample_trace(seed, 8, 10);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    Content bytes = trace.bytes;
    for (int wound = 0; wound < 3; ++wound) {
      const size_t begin = 64 + random() % (bytes.size() - 64);
      const size_t end = std::min<size_t>(bytes.size(), begin + 1 + random() % 1500);
      const bool zero = random() % 2 == 0;
      for (size_t i = begin; i < end; ++i)
        bytes[i] = zero ? std::byte{0} : static_cast<std::byte>(random());
    }
    if (random() % 2 == 0) bytes.resize(64 + random() % (bytes.size() - 64));
    INFO("seed " << seed << ", round " << round);
    const ReadResult damaged = read_all(bytes);
    const Outcome outcome = recover(bytes);
    require_clean(outcome);
    REQUIRE(outcome.report.events == damaged.events.size());
  }
}

TEST_CASE("recovery: chunks whose numbers do not ascend are numbered anew", "[recover]") {
  format::TraceMeta meta;
  meta.uuid = {7};
  format::FileHeader file;
  file.uuid = meta.uuid;
  file.file_tag = format::file_tag_of(meta.uuid);
  const SharedBytes bytes = std::make_shared<Content>();
  format::RecordWriter writer(std::make_unique<MemorySink>(bytes));
  REQUIRE(writer.write_file_header(file).ok());
  REQUIRE(writer.write({.kind = RecordKind::kMeta, .item_count = 1}, encode_meta(meta)).ok());
  for (const uint64_t first_seq : {100u, 50u}) {
    const format::Definitions definitions;
    format::EventEncoder chunk(definitions);
    for (uint32_t i = 0; i < 3; ++i) {
      REQUIRE(chunk.add(format::Step{.header = {.t_ns = 5}, .index = i}).ok());
    }
    const format::RecordHeader header{.kind = RecordKind::kEvents,
                                      .time_begin_ns = 5,
                                      .time_end_ns = 5,
                                      .step_begin = 0,
                                      .step_end = 0,
                                      .item_count = 3};
    REQUIRE(writer.write(header, chunk.finish(first_seq)).ok());
  }
  const Outcome outcome = recover(*bytes);
  require_clean(outcome);
  CHECK(outcome.report.events == 6);
  CHECK(outcome.report.missing_events == 100);
  CHECK(outcome.read.events.size() == 7);
}

TEST_CASE("recovery: a full disk is a failure with its reason, wherever it fills up", "[recover]") {
  const SampleTrace trace = make_sample_trace(56, 3, 6);
  const size_t whole = recover(trace.bytes).bytes.size();
  for (size_t capacity = 0; capacity < whole; capacity += 61) {
    auto opened =
        TraceContainer::open(std::make_unique<MemorySource>(trace.bytes), OpenPolicy::kScan);
    const auto report = tools::recover(
        *opened.value(), std::make_unique<MemorySink>(std::make_shared<Content>(), capacity), 2);
    REQUIRE(report.status().code == StatusCode::kNoSpace);
  }
}

}  // namespace convtrace::test
