#include <errno.h>
#include <sys/stat.h>

#include <fstream>

#include "format/base/checksum.h"
#include "format/file/file_sink.h"
#include "format/file/record_codec.h"
#include "sample_trace.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

using format::FileHeader;
using reader::OpenPolicy;
using reader::TraceReader;
using reader::TraceState;
using test::make_sample_trace;
using test::read_all;
using test::SampleTrace;
using test::TempDir;

void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<long>(content.size()));
}

/// The sample with another file header, sealed as a writer would.
std::vector<std::byte> with_header(const SampleTrace& trace, void (*change)(FileHeader&)) {
  const auto slot = format::SlotView(trace.bytes.data(), format::kSlotBytes);
  FileHeader header = format::decode_file_header(slot).value();
  change(header);
  std::vector<std::byte> bytes = trace.bytes;
  std::ranges::copy(format::encode(header), bytes.begin());
  return bytes;
}

TEST_CASE("trace reader: what is no trace is refused with its reason", "[reader]") {
  const TempDir dir;
  const auto status_of = [](const std::string& path) { return TraceReader::open(path).status(); };

  write_file(dir / "empty", "");
  CHECK(status_of(dir / "empty").code == StatusCode::kEmpty);

  write_file(dir / "short text", "hello\n");
  CHECK(status_of(dir / "short text").code == StatusCode::kNotATrace);

  write_file(dir / "text", std::string(3 << 20, 'x'));
  CHECK(status_of(dir / "text").code == StatusCode::kNotATrace);

  const Status directory = status_of(dir / "");
  CHECK(directory.code == StatusCode::kIoError);
  CHECK(directory.detail == EISDIR);

  const Status missing = status_of(dir / "missing");
  CHECK(missing.code == StatusCode::kIoError);
  CHECK(missing.detail == ENOENT);

  REQUIRE(mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(status_of(dir / "fifo").code == StatusCode::kIoError);
}

TEST_CASE("trace reader: another major version is refused with its number", "[reader]") {
  const SampleTrace trace = make_sample_trace(21, 1, 3);
  const Status status =
      read_all(with_header(trace, [](FileHeader& h) { h.version_major = 2; })).opened;
  CHECK(status.code == StatusCode::kUnsupportedVersion);
  CHECK(status.detail == 2);
}

TEST_CASE("trace reader: a later minor version and optional features are read", "[reader]") {
  const SampleTrace trace = make_sample_trace(22, 1, 3);
  const auto bytes = with_header(trace, [](FileHeader& h) {
    h.version_minor = 9;
    h.optional_features = 0xFFFFFFFF;
  });
  CHECK(read_all(bytes).state == TraceState::kComplete);
  CHECK(read_all(bytes).events == trace.events);
}

TEST_CASE("trace reader: an unknown required feature is refused with its bit", "[reader]") {
  const SampleTrace trace = make_sample_trace(23, 1, 3);
  const Status status =
      read_all(with_header(trace, [](FileHeader& h) { h.required_features = 1u << 5; })).opened;
  CHECK(status.code == StatusCode::kUnsupportedFeature);
  CHECK(status.detail == 5);
}

TEST_CASE(
    "trace reader: without its footer a trace is unclosed, and an index-only reader refuses it",
    "[reader]") {
  SampleTrace trace = make_sample_trace(24, 2, 3);
  trace.bytes.resize(trace.records.back().offset);
  const auto scanned = read_all(trace.bytes);
  CHECK(scanned.state == TraceState::kUnclosed);
  CHECK(scanned.events == trace.events);
  CHECK(read_all(trace.bytes, OpenPolicy::kIndexOnly).opened.code == StatusCode::kTruncated);
}

TEST_CASE("trace reader: index and scan give the same events", "[reader]") {
  const SampleTrace trace = make_sample_trace(25, 5, 20);
  const auto indexed = read_all(trace.bytes, OpenPolicy::kIndexOnly);
  const auto scanned = read_all(trace.bytes, OpenPolicy::kScan);
  CHECK(indexed.state == TraceState::kComplete);
  CHECK(scanned.state == TraceState::kComplete);
  CHECK(indexed.events == trace.events);
  CHECK(scanned.events == trace.events);
  CHECK(indexed.counts.records == scanned.counts.records);
}

TEST_CASE("trace reader: an index that does not fit the file is not believed",
          "[reader][recovery]") {
  const SampleTrace trace = make_sample_trace(26, 2, 4);
  // A footer that is valid in itself but points elsewhere.
  const auto last = format::SlotView(&trace.bytes[trace.records.back().offset], format::kSlotBytes);
  format::Footer footer = format::decode_footer(last).value();
  SECTION("index offset") { footer.index_offset -= format::kSlotBytes; }
  SECTION("index offset not a slot") { footer.index_offset += 1; }
  SECTION("data end") { footer.data_end -= format::kSlotBytes; }
  SECTION("record count") { footer.record_count += 1; }
  SECTION("index beyond the file") { footer.index_offset = uint64_t{1} << 62; }
  std::vector<std::byte> bytes = trace.bytes;
  std::ranges::copy(format::encode(footer),
                    bytes.begin() + static_cast<ptrdiff_t>(trace.records.back().offset));
  CHECK(read_all(bytes).events == trace.events);
}

TEST_CASE("trace reader: rewinding gives the same events and problems again", "[reader]") {
  const SampleTrace trace = make_sample_trace(27, 3, 6);
  std::vector<std::byte> bytes = trace.bytes;
  bytes[trace.records[4].offset + format::kSlotBytes] ^= std::byte{1};
  auto opened = TraceReader::open(std::make_unique<reader::MemorySource>(bytes));
  REQUIRE(opened.ok());
  TraceReader& reader = *opened.value();
  size_t first = 0, second = 0;
  while (reader.next() != nullptr) ++first;
  reader.rewind();
  while (reader.next() != nullptr) ++second;
  CHECK(first == 12);
  CHECK(second == first);
  CHECK(reader.problems().size() == 1);
  CHECK(reader.counts().lost_records == 1);
}

}  // namespace
}  // namespace convtrace
