// usage: make_corpus FOLDER    writes the seeds of trace_fuzz: small traces and their payloads

#include <cstdio>
#include <fstream>
#include <string>

#include "format/base/checksum.h"
#include "reader/payload_reader.h"
#include "reader/record_scanner.h"
#include "tests/support/event_generator.h"
#include "tests/support/memory_sink.h"
#include "tests/support/trace_builder.h"

namespace convtrace {
namespace {

std::vector<std::byte> sample(bool closed) {
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  test::TraceBuilder builder(std::make_unique<test::MemorySink>(bytes));
  test::EventGenerator generator(7, builder.definitions());
  builder.fact("version.torch", "2.13.0");
  for (size_t kind = 0; kind < std::variant_size_v<format::Event>; ++kind) {
    builder.event(generator.make(kind));
    if (kind == 4) builder.flush();
  }
  if (closed) {
    builder.close();
  } else {
    builder.leave_unclosed();
  }
  return *bytes;
}

void write(const std::string& path, char what, Bytes prefix, Bytes bytes) {
  std::ofstream out(path, std::ios::binary);
  out.put(what);
  for (const Bytes part : {prefix, bytes}) {
    out.write(reinterpret_cast<const char*>(part.data()), static_cast<long>(part.size()));
  }
}

void write_payloads(const std::string& folder, const std::vector<std::byte>& trace) {
  const reader::MemorySource source(trace);
  reader::ProblemList problems;
  reader::RecordScanner scanner(source, reader::majority_file_tag(source).value_or(0), problems);
  reader::PayloadReader payloads(source);
  while (const auto entry = scanner.next()) {
    const auto raw = payloads.read(*entry);
    if (!raw.ok()) continue;
    const std::string number = std::to_string(entry->header.seq);
    const uint64_t count = entry->header.item_count;
    switch (entry->header.kind) {
      case format::RecordKind::kEvents:
        write(folder + "/chunk-" + number, 2, std::as_bytes(std::span(&count, 1)), raw.value());
        break;
      case format::RecordKind::kDefs:
        write(folder + "/defs-" + number, 3, {}, raw.value());
        break;
      case format::RecordKind::kMeta:
        write(folder + "/meta-" + number, 4, {}, raw.value());
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace convtrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_corpus FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  const auto closed = convtrace::sample(true);
  convtrace::write(folder + "/closed", 0, {}, closed);
  convtrace::write(folder + "/closed-sealed", 1, {}, closed);
  convtrace::write(folder + "/unclosed-sealed", 1, {}, convtrace::sample(false));
  convtrace::write_payloads(folder, closed);
  return 0;
}
