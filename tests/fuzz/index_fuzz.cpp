// Any index, each entry and all around it with good checksums, behind the records of a good trace:
// it is used or not, but no event comes out that the records do not hold.

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "format/base/checksum.h"
#include "format/file/record_codec.h"
#include "reader/trace_reader.h"
#include "tests/support/describe.h"
#include "tests/support/memory_sink.h"
#include "tests/support/trace_builder.h"

namespace convtrace {
namespace {

using Content = std::vector<std::byte>;
using format::kIndexEntryBytes;
using format::kSlotBytes;

Content records() {
  const test::SharedBytes bytes = std::make_shared<Content>();
  test::TraceBuilder builder(std::make_unique<test::MemorySink>(bytes));
  builder.step(0).stats({.values = {1}}).flush().step(1).launch({}).leave_unclosed();
  return *bytes;
}

std::multiset<std::string> events_of(const Content& bytes, reader::OpenPolicy policy) {
  std::multiset<std::string> events;
  auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(bytes), policy);
  if (!opened.ok()) return events;
  while (const format::Event* event = opened.value()->next()) events.insert(test::describe(*event));
  return events;
}

void append(Content& bytes, Bytes more) { bytes.insert(bytes.end(), more.begin(), more.end()); }

/// The records, an INDEX with `payload`, and a FOOTER that fits both.
Content with_index(const Content& good, Content payload) {
  const uint32_t tag = load_le<uint32_t>(&good[56]);
  for (size_t at = 0; at + kIndexEntryBytes <= payload.size(); at += kIndexEntryBytes) {
    std::byte* header = &payload[at + sizeof(uint64_t)];
    store_le(header + 52, tag);
    store_le(header + 60, checksum32(Bytes(header, 60)));
  }
  const auto entries = static_cast<uint32_t>(payload.size() / kIndexEntryBytes);
  format::RecordHeader index{.kind = format::RecordKind::kIndex, .seq = entries};
  index.stored_size = index.raw_size = static_cast<uint32_t>(payload.size());
  index.item_count = entries;
  index.file_tag = tag;
  index.payload_checksum = checksum32(payload);
  payload.resize(align_up(payload.size(), kSlotBytes));
  format::Footer footer{.seq = entries + 1u};
  footer.index_offset = footer.data_end = good.size();
  footer.record_count = entries;
  footer.file_tag = tag;
  Content bytes = good;
  append(bytes, format::encode(index));
  append(bytes, payload);
  append(bytes, format::encode(footer));
  return bytes;
}

}  // namespace
}  // namespace convtrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  static const Content good = records();
  static const std::multiset<std::string> held = events_of(good, reader::OpenPolicy::kScan);
  const auto input = std::as_bytes(std::span(data, size));
  const Content bytes = with_index(good, Content(input.begin(), input.end()));
  for (const auto policy : {reader::OpenPolicy::kIndexOrScan, reader::OpenPolicy::kIndexOnly}) {
    const std::multiset<std::string> events = events_of(bytes, policy);
    if (!std::includes(held.begin(), held.end(), events.begin(), events.end())) std::abort();
  }
  return 0;
}
