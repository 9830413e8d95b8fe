// BLOB payloads. What they build on, if anything, is made up: it only enters by XOR.

#include <cstdint>
#include <vector>

#include "format/base/checksum.h"
#include "format/values/part_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  const Bytes payload = std::as_bytes(std::span(data, size));
  const auto header = format::decode_blob_header(payload);
  if (!header) return 0;
  const std::vector<std::byte> base(header->depth == 0 ? 0 : header->part_bytes, std::byte{0x5A});
  std::vector<std::byte> raw(header->part_bytes);
  format::PartDecoder decoder;
  const Status decoded = decoder.decode(*header, payload, base, raw);
  if (decoded.ok() && checksum64(raw) != header->checksum) __builtin_trap();
  return 0;
}
