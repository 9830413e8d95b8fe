// Recovery among records that are not of this trace, or not of this version: FORMAT.md sections 3
// and 7.

#include "reader/record_scanner.h"

#include <algorithm>

#include "format/file/record_writer.h"
#include "sample_trace.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"

namespace convtrace {
namespace {

using format::FileHeader;
using format::kSlotBytes;
using format::RecordHeader;
using format::RecordKind;
using format::RecordWriter;
using test::read_all;
using test::ReadResult;
using test::SampleTrace;

constexpr uint32_t kTag = 0x5EED;

/// Records of any content, with good headers.
struct Records {
  test::SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  RecordWriter writer{std::make_unique<test::MemorySink>(bytes)};

  Records() {
    FileHeader header;
    header.file_tag = kTag;
    REQUIRE(writer.write_file_header(header).ok());
  }
  Records& add(RecordKind kind, Bytes payload) {
    RecordHeader header;
    header.kind = kind;
    REQUIRE(writer.write(header, payload).ok());
    return *this;
  }
};

struct Scan {
  std::vector<uint64_t> seqs;
  uint64_t lost = 0;
  uint64_t skipped = 0;
};

Scan scan(std::vector<std::byte> bytes) {
  const reader::MemorySource source(std::move(bytes));
  reader::ProblemList problems;
  reader::RecordScanner scanner(source, kTag, problems);
  Scan result;
  while (const auto entry = scanner.next()) result.seqs.push_back(entry->header.seq);
  scanner.finish();
  result.lost = scanner.lost_records();
  result.skipped = problems.skipped_bytes();
  return result;
}

/// Bytes that zstd cannot shrink, so that they lie in the file as they are.
std::vector<std::byte> with_noise(const std::vector<std::byte>& content, size_t noise_bytes) {
  std::vector<std::byte> bytes = content;
  uint64_t state = 1;
  for (size_t i = 0; i < noise_bytes; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes.push_back(static_cast<std::byte>(state >> 56));
  }
  return bytes;
}

using Seqs = std::vector<uint64_t>;

TEST_CASE("record scanner: a trace inside a payload is never taken for records of its own",
          "[reader][recovery]") {
  Records outer;
  outer.add(RecordKind::kMeta, {}).add(RecordKind::kEvents, {});
  SECTION("of another trace") {
    outer.add(RecordKind::kEvents, with_noise(test::make_sample_trace(31, 3, 5).bytes, 200'000));
  }
  SECTION("of this trace, as far as it was written then") {
    const std::vector<std::byte> self = *outer.bytes;
    outer.add(RecordKind::kEvents, with_noise(self, 20'000));
  }
  const uint64_t end = outer.bytes->size();
  outer.add(RecordKind::kEvents, {});
  CHECK(scan(*outer.bytes).seqs == Seqs{0, 1, 2, 3});

  const uint64_t begin = 3 * kSlotBytes;  // of the outer record, its payload stored as it is
  std::vector<std::byte> bytes = *outer.bytes;
  bytes[begin + 5] ^= std::byte{1};
  const Scan damaged = scan(bytes);
  CHECK(damaged.seqs == Seqs{0, 1, 3});
  CHECK(damaged.lost == 1);
  CHECK(damaged.skipped == end - begin);
}

TEST_CASE("record scanner: without a file header, a trace inside a payload has no vote",
          "[reader][recovery]") {
  Records outer;
  outer.add(RecordKind::kMeta, {});
  outer.add(RecordKind::kEvents, with_noise(test::make_sample_trace(33, 20, 2).bytes, 200'000));
  const std::optional<uint32_t> tag = reader::majority_file_tag(reader::MemorySource(*outer.bytes));
  CHECK(tag == kTag);
}

TEST_CASE("record scanner: a crafted record number does not hide what follows",
          "[reader][recovery]") {
  Records records;
  for (int i = 0; i < 4; ++i) records.add(RecordKind::kEvents, {});
  std::vector<std::byte> bytes = *records.bytes;
  RecordHeader forged;
  forged.kind = RecordKind::kEvents;
  forged.file_tag = kTag;
  forged.seq = 1'000'000;
  std::ranges::copy(format::encode(forged), bytes.begin() + 2 * kSlotBytes);
  CHECK(scan(bytes).seqs == Seqs{0, 2, 3});
}

TEST_CASE("record scanner: a length beyond the file is a cut tail", "[reader][recovery]") {
  Records records;
  records.add(RecordKind::kEvents, {}).add(RecordKind::kEvents, with_noise({}, 1000));
  std::vector<std::byte> bytes = *records.bytes;
  bytes.resize(bytes.size() - 300);
  const Scan result = scan(bytes);
  CHECK(result.seqs == Seqs{0});
  CHECK(result.lost == 0);
  CHECK(result.skipped == 0);
}

TEST_CASE("record scanner: headers that claim much are walked in linear time", "[reader][limits]") {
  // Each slot a good header of another trace that claims 1 MiB: must be stepped over slot by slot.
  RecordHeader claim;
  claim.kind = RecordKind::kEvents;
  claim.stored_size = claim.raw_size = 1 << 20;
  claim.file_tag = kTag + 1;
  std::vector<std::byte> bytes;
  const format::Slot slot = format::encode(claim);
  for (int i = 0; i < 200'000; ++i) bytes.insert(bytes.end(), slot.begin(), slot.end());
  const Scan result = scan(bytes);
  CHECK(result.seqs.empty());
  CHECK(result.skipped == bytes.size() - kSlotBytes);
}

/// A sample trace with one more record before its second one, made by `change` from that one's
/// header.
template <typename Change>
ReadResult read_with_changed_record(const SampleTrace& trace, Change change) {
  std::vector<std::byte> bytes = trace.bytes;
  bytes.resize(trace.records[5].offset);
  const auto at = [&](size_t i) {
    return bytes.begin() + static_cast<ptrdiff_t>(trace.records[i].offset);
  };
  RecordHeader header = trace.records[4].header;
  change(header);
  std::ranges::copy(format::encode(header), at(4));
  return read_all(bytes);
}

TEST_CASE("trace reader: what a newer version may store is passed over by its length", "[reader]") {
  const SampleTrace trace = test::make_sample_trace(32, 3, 6);
  REQUIRE(trace.records[4].header.kind == RecordKind::kEvents);
  constexpr auto kPrivate = static_cast<RecordKind>(0x0042);
  constexpr auto kSkippable = static_cast<RecordKind>(0x4042);

  const auto unknown_kind =
      read_with_changed_record(trace, [](RecordHeader& h) { h.kind = kPrivate; });
  CHECK(unknown_kind.events.size() == 6);
  CHECK(unknown_kind.counts.lost_records == 1);
  CHECK(unknown_kind.state == reader::TraceState::kDamaged);

  const auto skippable =
      read_with_changed_record(trace, [](RecordHeader& h) { h.kind = kSkippable; });
  CHECK(skippable.events.size() == 6);
  CHECK(skippable.problems == 0);
  CHECK(skippable.state == reader::TraceState::kUnclosed);

  const auto codec = read_with_changed_record(
      trace, [](RecordHeader& h) { h.codec = static_cast<format::Codec>(9); });
  CHECK(codec.events.size() == 6);
  CHECK(codec.counts.lost_records == 1);

  const auto reserved = read_with_changed_record(trace, [](RecordHeader& h) { h.flags |= 0x10; });
  CHECK(reserved.events.size() == 6);
  CHECK(reserved.counts.lost_records == 1);

  const auto unused = read_with_changed_record(trace, [](RecordHeader& h) { h.flags |= 0x08; });
  CHECK(unused.events.size() == 12);
  CHECK(unused.problems == 0);
}

}  // namespace
}  // namespace convtrace
