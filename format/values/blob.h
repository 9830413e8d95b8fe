#pragma once
/// @file blob.h
/// The fixed header of a BLOB record's payload: which part of which value it contains, and in what
/// form.
///
/// A value is identified by its content (hash and length). So equal values are stored once, and an
/// event refers to its value by the statistics that it has anyway.
///
/// Place:    part_encoder.h makes payloads, part_decoder.h reads them.
/// Threads:  pure functions.
/// Source:   format/FORMAT.md section 6.8.

#include <optional>

#include "format/base/bytes.h"
#include "format/model/dtype.h"

namespace convtrace::format {

/// The size of parts that the writer makes: it fits in a second-level cache, because each byte is
/// read several times.
inline constexpr uint32_t kPartBytes = 256u << 10;
inline constexpr uint32_t kMaxPartBytes = 1u << 20;  ///< the largest part that a reader accepts
/// The longest chain of parts that must be decoded first; each is stored as the XOR with the next.
inline constexpr uint8_t kMaxBaseDepth = 16;
inline constexpr size_t kBlobHeaderBytes = 48;
inline constexpr uint32_t kMaxPlanes = 8;
/// The header is followed by a word for each plane: its stored bytes, and whether they are a zstd
/// frame.
inline constexpr uint32_t kFrameBit = 0x80000000;

/// A value, by its content: TensorStats' hash and bytes.
struct ContentId {
  uint64_t hash = 0;
  uint64_t bytes = 0;
  bool operator==(const ContentId&) const = default;
};

/// How elements are split into byte planes before compression.
struct ElementForm {
  uint8_t width = 1;    ///< bytes of a real element, which is the number of planes
  bool rotate = false;  ///< left by one bit, which puts the exponent of a float into one byte
  bool operator==(const ElementForm&) const = default;
};
[[nodiscard]] constexpr ElementForm element_form(DType dtype) {
  const bool complex = dtype == DType::kC64 || dtype == DType::kC128;
  const auto width = static_cast<uint8_t>(element_bytes(dtype) / (complex ? 2 : 1));
  return {width, width > 1 && number_class(dtype) == NumberClass::kFloat};
}

/// One part of a value.
struct BlobHeader {
  ContentId content;
  uint64_t offset = 0;     ///< bytes from the begin of the value to the part
  uint64_t checksum = 0;   ///< checksum64 of the part as it was in memory
  uint64_t base_hash = 0;  ///< hash of the value of equal length whose part this one was XORed with
  uint32_t part_bytes = 0;
  ElementForm form;
  uint8_t depth = 0;  ///< 0: no base; else one more than the base's
  bool operator==(const BlobHeader&) const = default;
};

/// Writes kBlobHeaderBytes.
void encode_header(const BlobHeader& header, std::byte* to) noexcept;

/// @return nothing if a field is outside its limits or the payload too short.
[[nodiscard]] std::optional<BlobHeader> decode_blob_header(Bytes payload) noexcept;

}  // namespace convtrace::format
