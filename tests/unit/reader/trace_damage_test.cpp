// Recovery: FORMAT.md section 7.

#include <errno.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "format/file/record_codec.h"
#include "sample_trace.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

using format::RecordEntry;
using format::RecordKind;
using reader::OpenPolicy;
using reader::TraceState;
using test::make_sample_trace;
using test::read_all;
using test::ReadResult;
using test::SampleTrace;

using Content = std::vector<std::byte>;

Content cut(const Content& bytes, size_t size) {
  return Content(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
}

/// Events of all chunks whose stored bytes end within the first `size` bytes.
size_t events_within(const SampleTrace& trace, size_t size) {
  size_t events = 0;
  for (const RecordEntry& record : trace.records) {
    if (record.header.kind != RecordKind::kEvents) continue;
    const uint64_t end = record.offset + format::kSlotBytes + record.header.stored_size;
    if (end <= size) events += record.header.item_count;
  }
  return events;
}

bool is_prefix(const std::vector<std::string>& events, const std::vector<std::string>& of) {
  return events.size() <= of.size() && std::equal(events.begin(), events.end(), of.begin());
}

/// `events` in order, none of them twice and none that is not in `of`.
bool is_subsequence(const std::vector<std::string>& events, const std::vector<std::string>& of) {
  auto from = of.begin();
  for (const std::string& event : events) {
    from = std::find(from, of.end(), event);
    if (from == of.end()) return false;
    ++from;
  }
  return true;
}

TEST_CASE("trace reader: a trace cut at any byte gives every whole chunk and is unclosed",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(11, 3, 6);
  for (size_t size = 0; size < trace.bytes.size(); ++size) {
    const ReadResult result = read_all(cut(trace.bytes, size));
    INFO("cut at " << size);
    if (size < format::kSlotBytes) {
      REQUIRE(result.opened.code == (size == 0 ? StatusCode::kEmpty : StatusCode::kTruncated));
      continue;
    }
    REQUIRE(result.opened.ok());
    REQUIRE(result.state == TraceState::kUnclosed);
    REQUIRE(result.events.size() == events_within(trace, size));
    REQUIRE(is_prefix(result.events, trace.events));
    REQUIRE(result.without_definition == 0);
    REQUIRE(result.counts.lost_records == 0);
  }
  CHECK(read_all(trace.bytes).state == TraceState::kComplete);
  CHECK(read_all(trace.bytes).events == trace.events);
}

TEST_CASE("trace reader: zeros where the rest of a trace should be invent and lose nothing",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(12, 3, 6);
  for (size_t size = format::kSlotBytes; size < trace.bytes.size(); size += 7) {
    Content bytes = trace.bytes;
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(size), bytes.end(), std::byte{0});
    const ReadResult result = read_all(bytes);
    INFO("zeros from " << size);
    REQUIRE(result.opened.ok());
    REQUIRE(result.events.size() >= events_within(trace, size));
    REQUIRE(is_prefix(result.events, trace.events));
  }
}

TEST_CASE("trace reader: space after the last record that was never written is an end, not damage",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(13, 2, 5);
  const RecordEntry& last = trace.records[trace.records.size() - 2];
  Content bytes = cut(trace.bytes, last.offset);
  bytes.resize(bytes.size() + 4096 + 17);
  const ReadResult result = read_all(bytes);
  CHECK(result.state == TraceState::kUnclosed);
  CHECK(result.events == trace.events);
}

/// @return the index of the record that holds byte `at`, or nothing for the file header.
std::optional<size_t> record_at(const SampleTrace& trace, size_t at) {
  for (size_t i = trace.records.size(); i-- > 0;) {
    if (at >= trace.records[i].offset) return i;
  }
  return std::nullopt;
}

/// @return the events of `trace` without those of record `touched`.
std::vector<std::string> events_outside(const SampleTrace& trace, size_t touched) {
  std::vector<std::string> events = trace.events;
  if (trace.records[touched].header.kind != RecordKind::kEvents) return events;
  const auto first = events.begin() + static_cast<ptrdiff_t>(trace.first_seq[touched]);
  events.erase(first, first + static_cast<ptrdiff_t>(trace.records[touched].header.item_count));
  return events;
}

/// Events of all chunks that have no byte in [begin, end).
size_t events_clear_of(const SampleTrace& trace, size_t begin, size_t end) {
  size_t events = 0;
  for (const auto& [offset, header] : trace.records) {
    if (header.kind != RecordKind::kEvents) continue;
    if (offset + format::record_extent(header) <= begin || offset >= end)
      events += header.item_count;
  }
  return events;
}

TEST_CASE("trace reader: one flipped bit loses at most the chunk it hit and invents nothing",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(14, 3, 6);
  const OpenPolicy policy = GENERATE(OpenPolicy::kIndexOrScan, OpenPolicy::kScan);
  for (size_t at = 0; at < trace.bytes.size(); ++at) {
    Content bytes = trace.bytes;
    bytes[at] ^= static_cast<std::byte>(1u << (at % 8));
    const ReadResult result = read_all(bytes, policy);
    INFO("bit " << at % 8 << " of byte " << at << ", policy " << static_cast<int>(policy));
    if (at == 8 || at == 9) {  // version_major: another major version is not read at all
      REQUIRE(result.opened.code == StatusCode::kUnsupportedVersion);
      continue;
    }
    REQUIRE(result.opened.ok());
    REQUIRE(is_subsequence(result.events, trace.events));
    const size_t shown = result.events.size() + result.without_definition;
    if (shown < trace.events.size() || result.without_definition > 0)
      REQUIRE(result.state == TraceState::kDamaged);
    const std::optional<size_t> touched = record_at(trace, at);
    if (!touched) {
      REQUIRE(result.state == TraceState::kDamaged);
      REQUIRE(result.events == trace.events);
      continue;
    }
    const bool indexed = policy == OpenPolicy::kIndexOrScan;
    const bool is_defs = trace.records[*touched].header.kind == RecordKind::kDefs;
    if (is_defs && !indexed) {  // its events are counted instead
      REQUIRE(shown == trace.events.size());
      continue;
    }
    REQUIRE(is_subsequence(events_outside(trace, *touched), result.events));
  }
}

namespace {

/// Whether [begin, end) is inside the payload of an index record: a scan does not read those.
bool is_index_payload(const SampleTrace& trace, size_t begin, size_t end) {
  return std::ranges::any_of(trace.records, [&](const auto& record) {
    const uint64_t payload = record.offset + format::kSlotBytes;  // a header is as long as a slot
    const uint64_t padded = (record.header.stored_size + format::kSlotBytes - 1) /
                            format::kSlotBytes * format::kSlotBytes;
    return record.header.kind == RecordKind::kIndex && begin >= payload && end <= payload + padded;
  });
}

}  // namespace

TEST_CASE("trace reader: any zeroed sector loses no record outside it and invents nothing",
          "[reader][recovery]") {
  constexpr size_t kSector = 512;
  const SampleTrace trace = make_sample_trace(18, 8, 10);
  const OpenPolicy policy = GENERATE(OpenPolicy::kIndexOrScan, OpenPolicy::kScan);
  for (size_t begin = 0; begin < trace.bytes.size(); begin += kSector) {
    const size_t end = std::min(begin + kSector, trace.bytes.size());
    Content bytes = trace.bytes;
    std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(begin), end - begin, std::byte{0});
    const ReadResult result = read_all(bytes, policy);
    INFO("sector at " << begin << " of " << trace.bytes.size() << ", policy "
                      << static_cast<int>(policy));
    REQUIRE(result.opened.ok());
    if (policy == OpenPolicy::kScan && is_index_payload(trace, begin, end)) {
      REQUIRE(result.events == trace.events);
      continue;
    }
    REQUIRE(result.state != TraceState::kComplete);
    REQUIRE(is_subsequence(result.events, trace.events));
    REQUIRE(result.events.size() + result.without_definition >= events_clear_of(trace, begin, end));
  }
}

/// A disk that cannot read some bytes.
class BadSectors final : public reader::ByteSource {
 public:
  BadSectors(Content bytes, uint64_t begin, uint64_t end)
      : bytes_(std::move(bytes)), begin_(begin), end_(end) {}
  [[nodiscard]] uint64_t size() const noexcept override { return bytes_.size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> to) const noexcept override {
    if (offset < end_ && offset + to.size() > begin_)
      return Status::make(StatusCode::kIoError, "read", EIO);
    return bytes_.read(offset, to);
  }

 private:
  reader::MemorySource bytes_;
  uint64_t begin_, end_;
};

TEST_CASE("trace reader: what the disk cannot read is damage, and reading goes on after it",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(19, 40, 20);
  const OpenPolicy policy = GENERATE(OpenPolicy::kIndexOrScan, OpenPolicy::kScan);
  REQUIRE(trace.bytes.size() > 8 * 4096);
  for (size_t begin = 4096; begin < trace.bytes.size(); begin += 4096) {
    const size_t end = std::min(begin + 4096, trace.bytes.size());
    const ReadResult result =
        read_all(std::make_unique<BadSectors>(trace.bytes, begin, end), policy);
    INFO("sector at " << begin << ", policy " << static_cast<int>(policy));
    REQUIRE(result.opened.ok());
    REQUIRE(result.state != TraceState::kComplete);
    REQUIRE(is_subsequence(result.events, trace.events));
    REQUIRE(result.events.size() + result.without_definition >= events_clear_of(trace, begin, end));
  }
}

TEST_CASE("trace reader: a file that shrinks while it is read ends there", "[reader][recovery]") {
  const test::TempDir folder;
  const SampleTrace trace = make_sample_trace(20, 3, 6);
  const std::string path = folder / "shrinks";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(trace.bytes.data()),
             static_cast<std::streamsize>(trace.bytes.size()));
  auto opened = reader::TraceReader::open(path);
  REQUIRE(opened.ok());
  std::filesystem::resize_file(path, trace.records[4].offset + 100);
  size_t events = 0;
  while (opened.value()->next() != nullptr) ++events;
  CHECK(events == events_within(trace, trace.records[4].offset));
  CHECK(opened.value()->state() == TraceState::kDamaged);
}

TEST_CASE("trace reader: a record whose header is damaged is read by the index's copy",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(15, 3, 6);
  Content bytes = trace.bytes;
  bytes[trace.records[4].offset + 20] ^= std::byte{1};
  REQUIRE(trace.records[4].header.kind == RecordKind::kEvents);
  const ReadResult result = read_all(bytes);
  CHECK(result.events == trace.events);
  CHECK(result.state == TraceState::kDamaged);
  CHECK(result.counts.lost_records == 0);
}

TEST_CASE("trace reader: events whose definitions are lost are counted and not shown",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(16, 3, 8);
  const RecordEntry& defs = trace.records[3];
  REQUIRE(defs.header.kind == RecordKind::kDefs);
  const auto consolidated = std::ranges::find(trace.records, format::kFlagConsolidated,
                                              [](const RecordEntry& r) { return r.header.flags; });
  REQUIRE(consolidated->header.kind == RecordKind::kDefs);
  Content bytes = cut(trace.bytes, consolidated->offset);  // as if killed just before

  SECTION("damaged payload") { bytes[defs.offset + format::kSlotBytes + 3] ^= std::byte{4}; }
  SECTION("damaged header") { bytes[defs.offset + 9] ^= std::byte{4}; }

  const ReadResult result = read_all(bytes);
  CHECK(result.state == TraceState::kDamaged);
  CHECK(result.without_definition > 0);
  CHECK(result.events.size() + result.without_definition == trace.events.size());
  CHECK(is_subsequence(result.events, trace.events));
  CHECK(result.counts.lost_records == 1);
}

TEST_CASE("trace reader: a damaged payload is counted in records, events and bytes",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(17, 3, 8);
  const auto events = std::ranges::find(trace.records, RecordKind::kEvents,
                                        [](const RecordEntry& e) { return e.header.kind; });
  REQUIRE(events != trace.records.end());
  const RecordEntry& chunk = *events;
  Content bytes = trace.bytes;
  bytes[chunk.offset + format::kSlotBytes] ^= std::byte{1};
  const ReadResult result = read_all(bytes);
  CHECK(result.state == TraceState::kDamaged);
  CHECK(result.counts.lost_records == 1);
  CHECK(result.counts.events == trace.events.size() - chunk.header.item_count);
  CHECK(result.counts.skipped_bytes == format::record_extent(chunk.header));
  CHECK(result.problems == 1);
}

TEST_CASE("trace reader: noise over several records loses no record outside it",
          "[reader][recovery][property]") {
  const uint64_t seed = GENERATE(1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u);
  const SampleTrace trace = make_sample_trace(seed, 6, 10);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    Content bytes = trace.bytes;
    const size_t begin = format::kSlotBytes + random() % (bytes.size() - format::kSlotBytes);
    const size_t end = std::min<size_t>(bytes.size(), begin + 1 + random() % 3000);
    for (size_t i = begin; i < end; ++i) bytes[i] = static_cast<std::byte>(random());
    const ReadResult result = read_all(bytes);
    INFO("seed " << seed << ", noise in [" << begin << ", " << end << ")");
    REQUIRE(result.opened.ok());
    REQUIRE(is_subsequence(result.events, trace.events));
    REQUIRE(result.events.size() + result.without_definition >= events_clear_of(trace, begin, end));
  }
}

}  // namespace
}  // namespace convtrace
