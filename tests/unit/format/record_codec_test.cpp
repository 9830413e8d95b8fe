#include "format/file/record_codec.h"

#include "format/base/checksum.h"
#include "tests/support/catch.h"

namespace convtrace::format {
namespace {

RecordHeader some_header() {
  RecordHeader header;
  header.kind = RecordKind::kEvents;
  header.codec = Codec::kZstd;
  header.flags = kFlagUrgent;
  header.stored_size = 0x01020304;
  header.raw_size = 0x00010203;
  header.seq = 0x1122334455667788;
  header.time_begin_ns = 5;
  header.time_end_ns = UINT64_MAX;
  header.step_begin = 7;
  header.step_end = kNoStep - 1;
  header.item_count = 99;
  header.file_tag = 0xA0B0C0D0;
  header.payload_checksum = 0xDEADBEEF;
  return header;
}

uint8_t at(const Slot& slot, size_t offset) { return static_cast<uint8_t>(slot[offset]); }

TEST_CASE("checksum: is XXH3-64 with seed 0", "[format]") {
  // Test vectors of the xxHash specification's reference implementation.
  CHECK(checksum64({}) == 0x2D06800538D394C2);
  const std::array<std::byte, 1> zero{};
  CHECK(checksum64(zero) == 0xC44BDFF4074EECDB);
  CHECK(checksum32({}) == 0x38D394C2);
}

TEST_CASE("record header: every field comes back", "[format]") {
  const RecordHeader header = some_header();
  CHECK(decode_record_header(encode(header)) == header);
}

TEST_CASE("record header: fields lie where FORMAT.md section 3 says", "[format]") {
  const Slot slot = encode(some_header());
  CHECK(at(slot, 0) == 0xE5);
  CHECK(at(slot, 4) == 0x03);  // kind
  CHECK(at(slot, 6) == 1);     // codec
  CHECK(at(slot, 7) == 1);     // flags
  CHECK(at(slot, 8) == 0x04);  // stored_size, little-endian
  CHECK(at(slot, 11) == 0x01);
  CHECK(at(slot, 16) == 0x88);  // seq
  CHECK(at(slot, 52) == 0xD0);  // file_tag
  CHECK(at(slot, 56) == 0xEF);  // payload_checksum
  CHECK(load_le<uint32_t>(&slot[60]) == checksum32(Bytes(slot).first(60)));
}

TEST_CASE("record header: any flipped bit is noticed", "[format]") {
  const Slot good = encode(some_header());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Slot bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    INFO("bit " << bit);
    REQUIRE_FALSE(decode_record_header(bad));
  }
}

TEST_CASE("record header: sizes up to the limit are read, beyond it not", "[format][limits]") {
  RecordHeader header = some_header();
  for (uint32_t RecordHeader::*size : {&RecordHeader::stored_size, &RecordHeader::raw_size}) {
    header.*size = kMaxRecordBytes;
    CHECK(decode_record_header(encode(header)));
    header.*size = kMaxRecordBytes + 1;
    CHECK_FALSE(decode_record_header(encode(header)));
    header.*size = 0;
  }
}

TEST_CASE("record header: zero-filled space is no record", "[format]") {
  CHECK_FALSE(decode_record_header(Slot{}));
  RecordHeader header = some_header();
  header.kind = RecordKind::kInvalid;
  CHECK_FALSE(decode_record_header(encode(header)));
}

TEST_CASE("file header: every field comes back", "[format]") {
  FileHeader header;
  header.version_minor = 3;
  header.uuid = {1, 2, 3};
  header.start_realtime_ns = 4;
  header.start_monotonic_ns = 5;
  header.required_features = 6;
  header.optional_features = 7;
  header.file_tag = 8;
  const Result<FileHeader> back = decode_file_header(encode(header));
  REQUIRE(back.ok());
  CHECK(back.value().version_minor == 3);
  CHECK(back.value().uuid == header.uuid);
  CHECK(back.value().start_realtime_ns == 4);
  CHECK(back.value().start_monotonic_ns == 5);
  CHECK(back.value().required_features == 6);
  CHECK(back.value().optional_features == 7);
  CHECK(back.value().file_tag == 8);
}

TEST_CASE("file header: the version is judged before the checksum", "[format]") {
  Slot slot = encode(FileHeader{});
  slot[8] = std::byte{2};
  CHECK(decode_file_header(slot).status().code == StatusCode::kUnsupportedVersion);
  slot[8] = std::byte{1};
  slot[20] ^= std::byte{1};
  CHECK(decode_file_header(slot).status().code == StatusCode::kCorrupt);
  slot[0] = std::byte{'%'};
  CHECK(decode_file_header(slot).status().code == StatusCode::kNotATrace);
}

TEST_CASE("footer: every field comes back, and only a footer is one", "[format]") {
  const Footer footer{.seq = 9,
                      .index_offset = 1 << 20,
                      .data_end = 1 << 19,
                      .event_count = 12345,
                      .record_count = 17,
                      .file_tag = 3};
  const std::optional<Footer> back = decode_footer(encode(footer));
  REQUIRE(back);
  CHECK(back->seq == 9);
  CHECK(back->index_offset == 1 << 20);
  CHECK(back->data_end == 1 << 19);
  CHECK(back->event_count == 12345);
  CHECK(back->record_count == 17);
  CHECK(back->file_tag == 3);
  CHECK_FALSE(decode_footer(encode(some_header())));
}

}  // namespace
}  // namespace convtrace::format
