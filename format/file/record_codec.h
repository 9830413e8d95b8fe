#pragma once
/// @file record_codec.h
/// Converts the fixed 64-byte structures to bytes and back: the only place that knows field
/// offsets.
///
/// Threads:  pure functions.
/// Errors:   decoding returns nothing or a Status; nothing is allocated.
/// Source:   format/FORMAT.md sections 2 and 3.

#include <array>
#include <optional>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/file/layout.h"

namespace convtrace::format {

using Slot = std::array<std::byte, kSlotBytes>;
using SlotView = std::span<const std::byte, kSlotBytes>;

/// @return the tag that every record of the trace with this uuid carries.
[[nodiscard]] uint32_t file_tag_of(const std::array<uint8_t, 16>& uuid) noexcept;

/// Encoders compute the header checksum.
[[nodiscard]] Slot encode(const FileHeader& header) noexcept;
[[nodiscard]] Slot encode(const RecordHeader& header) noexcept;
[[nodiscard]] Slot encode(const Footer& footer) noexcept;

/// @return whether `bytes`, of any length, begins like a trace, as far as it goes.
[[nodiscard]] bool has_magic(Bytes bytes) noexcept;

/// Checks magic, version, header size and checksum in this order, since another major version may
/// compute the checksum differently.
/// @return kNotATrace, kUnsupportedVersion (detail: the major version), kCorrupt.
[[nodiscard]] Result<FileHeader> decode_file_header(SlotView bytes) noexcept;

/// @return nothing unless sync bytes and header checksum are right and both sizes are within
/// limits. The caller checks whether the record belongs to the file (file_tag) and to this place
/// (seq).
[[nodiscard]] std::optional<RecordHeader> decode_record_header(SlotView bytes) noexcept;

/// @return nothing unless it is a record header of kind FOOTER.
[[nodiscard]] std::optional<Footer> decode_footer(SlotView bytes) noexcept;

/// @return the distance from the record's start to the next record's start.
[[nodiscard]] constexpr uint64_t record_extent(const RecordHeader& header) noexcept {
  return kSlotBytes + align_up(header.stored_size, kSlotBytes);
}

}  // namespace convtrace::format
