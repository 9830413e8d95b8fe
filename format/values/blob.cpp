#include "format/values/blob.h"

namespace convtrace::format {
namespace {

constexpr size_t kHashAt = 0;
constexpr size_t kBytesAt = 8;
constexpr size_t kOffsetAt = 16;
constexpr size_t kChecksumAt = 24;
constexpr size_t kBaseAt = 32;
constexpr size_t kPartBytesAt = 40;
constexpr size_t kWidthAt = 44;
constexpr size_t kRotateAt = 45;
constexpr size_t kDepthAt = 46;
constexpr size_t kReservedAt = 47;

bool within_limits(const BlobHeader& header) {
  const uint8_t width = header.form.width;
  const bool whole = width == 1 || width == 2 || width == 4 || width == 8;
  if (!whole || header.depth > kMaxBaseDepth) return false;
  if (header.depth == 0 && header.base_hash != 0) return false;
  if (header.part_bytes == 0 || header.part_bytes > kMaxPartBytes) return false;
  if (header.part_bytes % width != 0) return false;
  return header.offset <= header.content.bytes &&
         header.part_bytes <= header.content.bytes - header.offset;
}

}  // namespace

void encode_header(const BlobHeader& header, std::byte* to) noexcept {
  store_le(to + kHashAt, header.content.hash);
  store_le(to + kBytesAt, header.content.bytes);
  store_le(to + kOffsetAt, header.offset);
  store_le(to + kChecksumAt, header.checksum);
  store_le(to + kBaseAt, header.base_hash);
  store_le(to + kPartBytesAt, header.part_bytes);
  store_le(to + kWidthAt, header.form.width);
  store_le(to + kRotateAt, static_cast<uint8_t>(header.form.rotate ? 1 : 0));
  store_le(to + kDepthAt, header.depth);
  store_le(to + kReservedAt, uint8_t{0});
}

std::optional<BlobHeader> decode_blob_header(Bytes payload) noexcept {
  if (payload.size() < kBlobHeaderBytes) return std::nullopt;
  const std::byte* const from = payload.data();
  const auto rotate = load_le<uint8_t>(from + kRotateAt);
  if (rotate > 1 || load_le<uint8_t>(from + kReservedAt) != 0) return std::nullopt;
  BlobHeader header;
  header.content = {load_le<uint64_t>(from + kHashAt), load_le<uint64_t>(from + kBytesAt)};
  header.offset = load_le<uint64_t>(from + kOffsetAt);
  header.checksum = load_le<uint64_t>(from + kChecksumAt);
  header.base_hash = load_le<uint64_t>(from + kBaseAt);
  header.part_bytes = load_le<uint32_t>(from + kPartBytesAt);
  header.form = {load_le<uint8_t>(from + kWidthAt), rotate != 0};
  header.depth = load_le<uint8_t>(from + kDepthAt);
  if (!within_limits(header)) return std::nullopt;
  return header;
}

}  // namespace convtrace::format
