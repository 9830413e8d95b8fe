// How fast a trace without its end is found again: row recover.gb_per_s, JSON on stdout.
//
// The row is what recovery consists of where nothing is known but the bytes: every record of an
// unclosed file is found by a scan and its payload held against its checksum. The file is in the
// page cache.
//
// usage: bench_recover [--quick]

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "format/file/file_sink.h"
#include "format/file/trace_writer.h"
#include "reader/payload_reader.h"
#include "reader/trace_container.h"
#include "tests/bench/rows.h"
#include "tests/support/event_generator.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace convtrace;

constexpr uint64_t kFileBytes = 256 << 20;

/// A killed process's trace of random events, of which some hundred are made and repeated.
/// @return its size.
uint64_t write_trace(const std::string& path) {
  format::Definitions definitions;
  test::EventGenerator generator(1, definitions);
  std::vector<format::Event> events;
  for (int i = 0; i < 5000; ++i) events.push_back(generator.make());
  auto sink = format::FileSink::create(path.c_str());
  if (!sink.ok()) abort();
  auto writer = format::TraceWriter::create(std::move(sink).value(), {}, definitions);
  if (!writer.ok()) abort();
  while (writer.value()->bytes_written() < kFileBytes) {
    for (const format::Event& event : events) {
      if (!writer.value()->append(event).ok()) abort();
    }
  }
  return writer.value()->bytes_written();
}

/// @return seconds for all of the file.
double recover(const std::string& path, uint64_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  auto source = reader::FileSource::open(path);
  if (!source.ok()) abort();
  const auto opened =
      reader::TraceContainer::open(std::move(source).value(), reader::OpenPolicy::kScan);
  if (!opened.ok()) abort();
  reader::PayloadReader payloads(opened.value()->source());
  uint64_t seen = format::kSlotBytes;
  for (const format::RecordEntry& entry : opened.value()->records()) {
    if (!payloads.read_stored(entry).ok()) abort();
    seen += format::record_extent(entry.header);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (seen != bytes) abort();
  return taken.count();
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const test::TempDir folder;
  const std::string path = folder / "killed.ctrace";
  const uint64_t bytes = write_trace(path);
  (void)recover(path, bytes);  // brings it into the page cache
  std::vector<double> speeds;
  for (int i = 0; i < (quick ? 15 : 51); ++i)
    speeds.push_back(static_cast<double>(bytes) * 1e-9 / recover(path, bytes));
  bench::Rows rows;
  rows.print({"recover.gb_per_s", "GB/s", bench::Goal::kAtLeast, 1,
              "absolute, one core: scan and checksums of an unclosed file in the page cache"},
             speeds);
  return 0;
}
