// Fuzz target of everything that reads traces. The first byte of an input says what the rest is:
//   0 a whole file; 1 a whole file whose checksums are put right first (else nothing gets past
//   them); 2 an EVENTS payload, preceded by its item_count; 3 a DEFS payload; 4 a META payload.

#include <cstdint>
#include <cstring>
#include <vector>

#include "format/base/checksum.h"
#include "format/record_codec.h"
#include "reader/event_decoder.h"
#include "reader/metadata_decoder.h"
#include "reader/trace_reader.h"
#include "tests/support/describe.h"

namespace convtrace {
namespace {

using format::kSlotBytes;

/// Makes every slot that begins like a record header a valid one of this file.
void put_checksums_right(std::vector<std::byte>& bytes) {
  if (bytes.size() < kSlotBytes) return;
  const auto seal = [&](size_t slot) {
    store_le(&bytes[slot + 60], checksum32(Bytes(bytes).subspan(slot, 60)));
  };
  const uint32_t tag = checksum32(Bytes(bytes).subspan(16, 16));
  store_le(&bytes[56], tag);
  seal(0);
  const format::Slot sync = format::encode(format::RecordHeader{});
  for (size_t slot = kSlotBytes; slot + kSlotBytes <= bytes.size(); slot += kSlotBytes) {
    if (std::memcmp(&bytes[slot], sync.data(), 4) != 0) continue;
    const size_t rest = bytes.size() - slot - kSlotBytes;
    const uint32_t stored = load_le<uint32_t>(&bytes[slot + 8]);
    store_le(&bytes[slot + 52], tag);
    if (stored <= rest) {
      store_le(&bytes[slot + 56], checksum32(Bytes(bytes).subspan(slot + kSlotBytes, stored)));
    }
    seal(slot);
  }
}

void read_trace(const std::vector<std::byte>& bytes, reader::OpenPolicy policy) {
  auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(bytes), policy);
  if (!opened.ok()) return;
  format::Event event;
  // Describing touches every byte that an event gives access to.
  while (opened.value()->next(event)) (void)test::describe(event);
  (void)opened.value()->counts();
}

void read_chunk(const std::vector<std::byte>& bytes) {
  if (bytes.size() < 8) return;
  const std::vector<std::byte> payload(bytes.begin() + 8, bytes.end());
  reader::EventDecoder decoder;
  if (!decoder.load(payload, load_le<uint32_t>(bytes.data())).ok()) return;
  format::Event event;
  for (;;) {
    const auto outcome = decoder.next(event);
    if (outcome == reader::EventDecoder::Outcome::kEnd) return;
    if (outcome == reader::EventDecoder::Outcome::kEvent) (void)test::describe(event);
  }
}

}  // namespace
}  // namespace convtrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  if (size == 0) return 0;
  const std::span<const std::byte> rest = std::as_bytes(std::span(data, size)).subspan(1);
  std::vector<std::byte> bytes(rest.begin(), rest.end());
  format::Definitions definitions;
  format::TraceMeta meta;
  uint32_t features = 0;
  switch (data[0] % 5) {
    case 1:
      put_checksums_right(bytes);
      [[fallthrough]];
    case 0:
      read_trace(bytes, reader::OpenPolicy::kIndexOrScan);
      read_trace(bytes, reader::OpenPolicy::kScan);
      break;
    case 2:
      read_chunk(bytes);
      break;
    case 3:
      (void)reader::decode_defs(bytes, definitions);
      break;
    default:
      (void)reader::decode_meta(bytes, meta, features);
      break;
  }
  return 0;
}
