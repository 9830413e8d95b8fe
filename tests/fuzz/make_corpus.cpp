// usage: make_corpus FOLDER    writes the seeds of all fuzz targets, each target's in its own
// folder

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "format/file/record_codec.h"
#include "reader/payload_reader.h"
#include "reader/record_scanner.h"
#include "reader/trace_container.h"
#include "tests/support/event_generator.h"
#include "tests/support/memory_sink.h"
#include "tests/support/trace_builder.h"

namespace convtrace {
namespace {

using Content = std::vector<std::byte>;

Content sample(bool closed) {
  const auto bytes = std::make_shared<Content>();
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

/// Values of two steps in several parts, the second built on the first.
Content sample_of_values() {
  const auto bytes = std::make_shared<Content>();
  test::TraceBuilder builder(std::make_unique<test::MemorySink>(bytes));
  Content first(2000), second;
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<std::byte>(i % 4 == 3 ? 60 : i);
  second = first;
  for (size_t i = 0; i < second.size(); i += 4) second[i] ^= std::byte{1};
  builder.step(0).value({.shape = {50, 10}, .bytes = first, .part_bytes = 800});
  builder.step(1).value({.shape = {50, 10}, .bytes = second, .part_bytes = 800, .base = first});
  builder.close();
  return *bytes;
}

void write(const std::string& path, Bytes bytes, Bytes prefix = {}) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  for (const Bytes part : {prefix, bytes})
    out.write(reinterpret_cast<const char*>(part.data()), static_cast<long>(part.size()));
}

/// Two steps of two modules with hashes, statistics, a stored value, a launch and a finding.
/// @param changed  the second module sees another value than the first one made.
Content sample_run(float value, bool closed, bool changed = false) {
  const auto bytes = std::make_shared<Content>();
  test::TraceBuilder builder(std::make_unique<test::MemorySink>(bytes));
  builder.fact("version.torch", value == 1 ? "2.12.0" : "2.13.0");
  for (uint32_t step = 0; step < 2; ++step) {
    const float loss = step == 0 ? 1 : value;
    builder.step(step)
        .stats({.scope = "fc",
                .slot = "input:0",
                .capture = format::Capture::kHash,
                .value = {.storage = 7},
                .values = {3, loss}})
        .launch({.kernel = "gemm", .scope = "fc"})
        .stats({.scope = "fc", .value = {.storage = 8}, .values = {1, 2, loss}})
        .stats({.scope = "head",
                .slot = "input:0",
                .capture = format::Capture::kHash,
                .value = {.storage = 8},
                .values = {1, 2, changed && step == 1 ? loss + 1 : loss}})
        .stats({.scope = "fc", .slot = "arg:0", .kernel = "gemm", .values = {4, loss}})
        .stats({.slot = "loss", .phase = format::Phase::kLoss, .values = {loss}})
        .finding({.level = format::Level::kError, .scope = "fc", .slot = "output:0"})
        .flush();
  }
  builder.value({.bytes = Content(64, std::byte{1})});
  closed ? builder.close() : builder.leave_unclosed();
  return *bytes;
}

/// As the target of the diff takes two traces.
void write_pair(const std::string& path, const Content& base, const Content& cand) {
  const auto length = static_cast<uint32_t>(base.size());
  Content both = base;
  both.insert(both.end(), cand.begin(), cand.end());
  write(path, both, std::as_bytes(std::span(&length, 1)));
}

void write_payloads(const std::string& folder, const Content& trace) {
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
        write(folder + "/chunk/events-" + number, raw.value(), std::as_bytes(std::span(&count, 1)));
        break;
      case format::RecordKind::kDefs: write(folder + "/meta/defs-" + number, raw.value()); break;
      case format::RecordKind::kMeta: write(folder + "/meta/meta-" + number, raw.value()); break;
      case format::RecordKind::kIndex:
        write(folder + "/index/entries", raw.value());
        write(folder + "/index/cut", raw.value().first(raw.value().size() / 2));
        break;
      default: break;
    }
  }
}

void write_parts(const std::string& folder, const Content& trace) {
  const auto opened = reader::TraceContainer::open(std::make_unique<reader::MemorySource>(trace),
                                                   reader::OpenPolicy::kIndexOnly);
  if (!opened.ok()) return;
  reader::PayloadReader payloads(opened.value()->source());
  for (const format::RecordEntry& entry : opened.value()->records()) {
    if (entry.header.kind != format::RecordKind::kBlob) continue;
    const auto raw = payloads.read(entry);
    if (raw.ok()) write(folder + "/blob/part-" + std::to_string(entry.header.seq), raw.value());
  }
}

/// Headers as the scanner's target expects them after its own record.
void write_scanner_seeds(const std::string& folder) {
  Content bytes;
  for (const uint64_t seq : {1u, 2u, 4u}) {
    const format::RecordHeader header{.kind = format::RecordKind::kEvents,
                                      .stored_size = 64,
                                      .raw_size = 64,
                                      .seq = seq,
                                      .file_tag = 0x5EED};
    const format::Slot slot = format::encode(header);
    bytes.insert(bytes.end(), slot.begin(), slot.end());
    bytes.resize(bytes.size() + (seq == 2 ? 128 : 64), std::byte{1});
  }
  write(folder + "/scanner/records", bytes);
  write(folder + "/scanner/cut", Bytes(bytes).first(150));
  write(folder + "/scanner/zeros", Content(200));
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
  convtrace::write(folder + "/file/closed", closed);
  convtrace::write(folder + "/file/unclosed", convtrace::sample(false));
  convtrace::write_payloads(folder, closed);
  const auto values = convtrace::sample_of_values();
  convtrace::write(folder + "/file/values", values);
  convtrace::write_parts(folder, values);
  using convtrace::sample_run;
  convtrace::write_pair(folder + "/diff/same", sample_run(1, true), sample_run(1, true));
  convtrace::write_pair(folder + "/diff/diverged", sample_run(1, true), sample_run(2, true));
  convtrace::write_pair(folder + "/diff/killed", sample_run(1, true), sample_run(2, false));
  convtrace::write_pair(folder + "/diff/changed", sample_run(1, true), sample_run(1, true, true));
  convtrace::write_pair(folder + "/diff/unlike", values, closed);
  convtrace::write_scanner_seeds(folder);
  return 0;
}
