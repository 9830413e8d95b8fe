#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "format/base/checksum.h"
#include "format/file/record_codec.h"
#include "format/values/blob.h"
#include "reader/payload_reader.h"
#include "reader/record_scanner.h"
#include "reader/snapshots.h"
#include "reader/trace_reader.h"
#include "tests/golden/golden_traces.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tools/common/json.h"

namespace convtrace {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = CONVTRACE_SOURCE_DIR;
const fs::path kGolden = kSource / "tests/golden";

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("golden: every trace of every version reads as it did when it was made", "[golden]") {
  int traces = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kGolden)) {
    if (entry.path().extension() != ".ctrace") continue;
    INFO(entry.path());
    fs::path expected = entry.path();
    CHECK(test::reading_of(entry.path()) == content(expected.replace_extension("expected.txt")));
    ++traces;
  }
  CHECK(traces >= 10);
}

TEST_CASE("golden: files that must not open do not", "[golden]") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(kGolden / "v1/must_fail")) {
    if (entry.path().extension() != ".ctrace") continue;
    INFO(entry.path());
    CHECK_FALSE(reader::TraceReader::open(entry.path()).ok());
    ++files;
  }
  CHECK(files == test::kMustFailFiles);
}

/// A key may have been added since; what was there must still be there.
void check_holds(const tools::Json& now, const tools::Json& then) {
  for (const auto& [key, value] : then.items()) {
    INFO(then.dump());
    INFO(key);
    REQUIRE(now.contains(key));
    REQUIRE(now[key] == value);
  }
}

TEST_CASE("golden: every trace shows the JSON that it did when it was made", "[golden]") {
  int records = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kGolden)) {
    if (entry.path().extension() != ".jsonl") continue;
    const fs::path trace = fs::path(entry.path()).replace_extension().replace_extension("ctrace");
    INFO(trace);
    std::istringstream now(test::json_of(trace)), then(content(entry.path()));
    for (std::string now_line, then_line; std::getline(then, then_line); ++records) {
      REQUIRE(std::getline(now, now_line));
      check_holds(tools::Json::parse(now_line), tools::Json::parse(then_line));
    }
    std::string more;
    CHECK_FALSE(std::getline(now, more));
  }
  CHECK(records > 80);
}

/// Record headers without what depends on the compressor's version, and payloads as they were
/// before it.
std::vector<std::string> records_of(const fs::path& path) {
  auto opened = reader::FileSource::open(path);
  REQUIRE(opened.ok());
  const reader::ByteSource& source = *opened.value();
  format::Slot slot;
  REQUIRE(source.read(0, slot).ok());
  const auto header = format::decode_file_header(slot);
  REQUIRE(header.ok());
  std::vector<std::string> records = {std::string(reinterpret_cast<const char*>(slot.data()), 64)};
  reader::ProblemList problems;
  reader::RecordScanner scanner(source, header.value().file_tag, problems);
  reader::PayloadReader payloads(source);
  while (auto entry = scanner.next()) {
    const auto raw = payloads.read(*entry);
    REQUIRE(raw.ok());
    const bool has_offsets = entry->header.kind == format::RecordKind::kIndex ||
                             entry->header.kind == format::RecordKind::kFooter;
    if (has_offsets) continue;
    entry->header.codec = format::Codec::kNone;
    entry->header.stored_size = entry->header.payload_checksum = 0;
    if (entry->header.kind == format::RecordKind::kBlob) entry->header.raw_size = 0;
    const format::Slot encoded = format::encode(entry->header);
    std::string& record = records.emplace_back(reinterpret_cast<const char*>(encoded.data()), 64);
    // Planes of a value are compressed inside its payload; the header has the checksum of them.
    const bool is_blob = entry->header.kind == format::RecordKind::kBlob;
    record.append(reinterpret_cast<const char*>(raw.value().data()),
                  is_blob ? format::kBlobHeaderBytes : raw.value().size());
  }
  return records;
}

TEST_CASE("golden: the writer still writes version 1's bytes", "[golden]") {
  const test::TempDir dir;
  for (const test::GoldenTrace& trace : test::kGolden) {
    const std::string name = std::string(trace.name) + ".ctrace";
    trace.write(dir / name);
    CHECK(records_of(dir / name) == records_of(kGolden / "v1" / name));
  }
}

TEST_CASE("golden: stored values are read as they were", "[golden]") {
  auto opened = reader::TraceReader::open(kGolden / "v1/values.ctrace");
  REQUIRE(opened.ok());
  const reader::TraceContainer& container = opened.value()->container();
  reader::Snapshots values(container.source(), container.records());
  size_t compared = 0;
  while (const format::Event* event = opened.value()->next()) {
    const auto* stats = std::get_if<format::TensorStats>(event);
    if (stats == nullptr) continue;
    std::vector<std::byte> bytes;
    const auto take = [&](Bytes part) {
      bytes.insert(bytes.end(), part.begin(), part.end());
      return true;
    };
    REQUIRE(values.read({stats->stats.hash, stats->bytes}, take).ok());
    CHECK(bytes.size() == stats->bytes);
    CHECK(checksum64(bytes) == stats->stats.hash);  // what the maker of these traces takes
    ++compared;
  }
  CHECK(compared == 22);
}

TEST_CASE("golden: the hex dump in FORMAT.md is the golden file", "[golden]") {
  const std::string trace = content(kGolden / "v1/tiny.ctrace");
  const std::string text = content(kSource / "format/FORMAT.md");
  const std::regex line("\n([0-9a-f]{4})  ((?:[0-9a-f]{2} ?){16})");
  size_t bytes = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it) {
    const size_t offset = std::stoul((*it)[1], nullptr, 16);
    std::istringstream hex((*it)[2]);
    for (size_t i = 0; i < 16; ++i, ++bytes) {
      unsigned value = 0;
      hex >> std::hex >> value;
      INFO("offset " << offset + i);
      REQUIRE(offset + i < trace.size());
      REQUIRE(value == static_cast<uint8_t>(trace[offset + i]));
    }
  }
  CHECK(bytes >= 256);
}

}  // namespace
}  // namespace convtrace
