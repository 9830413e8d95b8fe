#pragma once
/// @file seal_records.h
/// Puts checksums right that a fuzzer cannot guess: else little gets past them.

#include <cstring>
#include <vector>

#include "format/base/checksum.h"
#include "format/file/record_codec.h"

namespace convtrace::test {

/// Makes every slot that begins like a record header a valid one of the file with this tag.
inline void seal_records(std::vector<std::byte>& bytes, uint32_t file_tag) {
  using format::kSlotBytes;
  const format::Slot sync = format::encode(format::RecordHeader{});
  for (size_t slot = kSlotBytes; slot + kSlotBytes <= bytes.size(); slot += kSlotBytes) {
    if (std::memcmp(&bytes[slot], sync.data(), 4) != 0) continue;
    const size_t rest = bytes.size() - slot - kSlotBytes;
    const uint32_t stored = load_le<uint32_t>(&bytes[slot + 8]);
    store_le(&bytes[slot + 52], file_tag);
    if (stored <= rest)
      store_le(&bytes[slot + 56], checksum32(Bytes(bytes).subspan(slot + kSlotBytes, stored)));
    store_le(&bytes[slot + 60], checksum32(Bytes(bytes).subspan(slot, 60)));
  }
}

/// Seals a whole trace, its file header too.
inline void seal_trace(std::vector<std::byte>& bytes) {
  if (bytes.size() < format::kSlotBytes) return;
  const uint32_t tag = checksum32(Bytes(bytes).subspan(16, 16));
  store_le(&bytes[56], tag);
  store_le(&bytes[60], checksum32(Bytes(bytes).first(60)));
  seal_records(bytes, tag);
}

}  // namespace convtrace::test
