// EVENTS payloads, preceded by their item_count (8 bytes).

#include <cstdint>
#include <vector>

#include "reader/event_decoder.h"
#include "tests/support/describe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  if (size < 8) return 0;
  const auto input = std::as_bytes(std::span(data, size));
  const std::vector<std::byte> payload(input.begin() + 8, input.end());  // aligned
  reader::EventDecoder decoder;
  if (!decoder.load(payload, load_le<uint32_t>(input.data())).ok()) return 0;
  for (auto batch = decoder.next(); !batch.empty(); batch = decoder.next()) {
    // Describing touches every byte that an event gives access to.
    for (const format::Event& event : batch) (void)test::describe(event);
  }
  return 0;
}
