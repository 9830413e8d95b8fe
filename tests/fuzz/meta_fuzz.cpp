// META and DEFS payloads: whatever the bytes are, as both.

#include <cstdint>
#include <vector>

#include "reader/columns/definition_check.h"
#include "reader/metadata_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  const auto input = std::as_bytes(std::span(data, size));
  const std::vector<std::byte> payload(input.begin(), input.end());  // aligned
  format::TraceMeta meta;
  (void)reader::decode_meta(payload, meta);
  format::Definitions definitions;
  if (reader::decode_defs(payload, definitions).ok())
    (void)reader::DefinitionCheck(definitions).resolves(format::Scope{});
  return 0;
}
