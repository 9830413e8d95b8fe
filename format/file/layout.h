#pragma once
/// @file layout.h
/// Constants, limits and the three fixed structures of the container, as plain values.
///
/// Place:    record_codec.h converts them to bytes and back; no other file knows the position of a
///           field.
/// Source:   format/FORMAT.md sections 2 and 3 (structures) and 9 (limits).

#include <array>
#include <cstdint>

#include "format/model/events.h"
#include "format/model/meta.h"

namespace convtrace::format {

inline constexpr uint16_t kVersionMajor = 1;
inline constexpr uint16_t kVersionMinor = 0;
inline constexpr uint32_t kKnownRequiredFeatures = kFeatureHash2;

/// Records start at multiples of a slot, so a scan after damage looks nowhere else.
inline constexpr uint64_t kSlotBytes = 64;

inline constexpr uint32_t kMaxRecordBytes = 64u << 20;  ///< limit of a payload, stored and raw
inline constexpr uint32_t kChunkCloseBytes = 256u << 10;
inline constexpr uint32_t kMaxEventBytes = 1u << 20;
inline constexpr uint32_t kMaxChunkEvents = 64u << 10;
/// Operands of one launch; its parameters are at most 32764 bytes, so 4095 words.
inline constexpr uint32_t kMaxOperands = 4096;
inline constexpr uint32_t kMaxChunkOperands = 1u << 20;  ///< sum over the launches of a chunk
inline constexpr uint32_t kSumsEvery = 64;       ///< EVENTS records between two SUMS records
inline constexpr uint32_t kMaxSums = 64u << 10;  ///< steps in one SUMS record
inline constexpr uint32_t kIndexEntryBytes = 8 + 64;
inline constexpr uint32_t kMaxIndexEntries = 64u << 10;  ///< entries in one INDEX record

/// Stored values: append only.
enum class RecordKind : uint16_t {
  kInvalid = 0x0000,  ///< zero-filled space
  kMeta = 0x0001,
  kDefs = 0x0002,
  kEvents = 0x0003,
  kSums = 0x0004,
  kBlob = 0x0005,
  kIndex = 0x00FE,
  kFooter = 0x00FF,
};
/// A reader that does not know a kind with this bit skips the record silently.
inline constexpr uint16_t kMaySkipBit = 0x4000;

enum class Codec : uint8_t { kNone = 0, kZstd = 1 };

inline constexpr uint8_t kFlagUrgent = 0x01;  ///< EVENTS: contains an error finding
/// DEFS, SUMS: part of the complete set at the end.
inline constexpr uint8_t kFlagConsolidated = 0x02;
/// EVENTS: contains a finding or a loss, which readers that skip equal steps read, too.
inline constexpr uint8_t kFlagNotes = 0x04;
inline constexpr uint8_t kFlagFacts = 0x08;  ///< EVENTS: contains a fact
inline constexpr uint8_t kReservedFlags = 0xF0;

struct FileHeader {
  uint16_t version_major = kVersionMajor;
  uint16_t version_minor = kVersionMinor;
  uint32_t header_bytes = kSlotBytes;
  std::array<uint8_t, 16> uuid{};
  uint64_t start_realtime_ns = 0;
  uint64_t start_monotonic_ns = 0;
  uint32_t required_features = 0;
  uint32_t optional_features = 0;
  uint32_t file_tag = 0;
};

struct RecordHeader {
  RecordKind kind = RecordKind::kInvalid;
  Codec codec = Codec::kNone;
  uint8_t flags = 0;
  uint32_t stored_size = 0;
  uint32_t raw_size = 0;
  uint64_t seq = 0;
  uint64_t time_begin_ns = 0;
  uint64_t time_end_ns = 0;
  uint32_t step_begin = kNoStep;
  uint32_t step_end = kNoStep;
  uint32_t item_count = 0;
  uint32_t file_tag = 0;
  uint32_t payload_checksum = 0;
  bool operator==(const RecordHeader&) const = default;
};

struct Footer {
  uint64_t seq = 0;
  uint64_t index_offset = 0;  ///< offset of the first INDEX record
  uint64_t data_end = 0;      ///< offset after the last record that is neither INDEX nor FOOTER
  uint64_t event_count = 0;
  uint32_t record_count = 0;  ///< without INDEX and FOOTER
  uint32_t file_tag = 0;
};

/// Position of a record; an index consists of these.
struct RecordEntry {
  uint64_t offset = 0;
  RecordHeader header;
};

}  // namespace convtrace::format
