#pragma once
/// @file blob.h
/// The fixed beginning of a BLOB record's payload: which part of which value it holds, and how.
///
/// A value is known by its content (hash and length), so equal values are stored once and an event
/// needs no reference beside the statistics it has anyway.
///
/// Place:    part_encoder.h makes payloads, part_decoder.h reads them.
/// Threads:  pure functions.
/// Source:   format/FORMAT.md section 6.8.

#include <optional>
#include <vector>

#include "format/base/bytes.h"
#include "format/model/dtype.h"

namespace convtrace::format {

/// What a writer cuts values into: small enough for a second-level cache, since each byte is looked
/// at several times.
inline constexpr uint32_t kPartBytes = 256u << 10;
inline constexpr uint32_t kMaxPartBytes = 1u << 20;  ///< that a reader takes
/// Parts that have to be decoded first, at most: each is the XOR with the next.
inline constexpr uint8_t kMaxBaseDepth = 16;
inline constexpr size_t kBlobHeaderBytes = 48;
inline constexpr uint32_t kMaxPlanes = 8;
/// Behind the header a word for each plane: its stored bytes, and whether they are a zstd frame.
inline constexpr uint32_t kFrameBit = 0x80000000;

/// A value, by its content: TensorStats' hash and bytes.
struct ContentId {
  uint64_t hash = 0;
  uint64_t bytes = 0;
  bool operator==(const ContentId&) const = default;
};

/// How elements are taken apart before compression.
struct ElementForm {
  uint8_t width = 1;    ///< bytes of a real element, and planes
  bool rotate = false;  ///< left by one bit: brings the exponent of a float into one byte
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
  uint64_t offset = 0;     ///< of the part, in the value
  uint64_t checksum = 0;   ///< checksum64 of the part as it was in memory
  uint64_t base_hash = 0;  ///< of the value of equal length that the part was XORed with
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
