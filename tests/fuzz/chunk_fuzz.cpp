// EVENTS payloads, preceded by their item_count (8 bytes).

#include <cstdint>
#include <vector>

#include "reader/event_decoder.h"
#include "tests/support/describe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  using Outcome = reader::EventDecoder::Outcome;
  if (size < 8) return 0;
  const auto input = std::as_bytes(std::span(data, size));
  const std::vector<std::byte> payload(input.begin() + 8, input.end());  // aligned
  reader::EventDecoder decoder;
  if (!decoder.load(payload, load_le<uint32_t>(input.data())).ok()) return 0;
  format::Event event;
  for (Outcome outcome; (outcome = decoder.next(event)) != Outcome::kEnd;) {
    // Describing touches every byte that an event gives access to.
    if (outcome == Outcome::kEvent) (void)test::describe(event);
  }
  return 0;
}
