// Whole files, as they are and with their checksums put right (else little gets past them): every
// way to read them, and recovery, whose result must be a closed trace whatever went in.

#include <cstdint>
#include <cstdlib>

#include "reader/trace_check.h"
#include "reader/trace_reader.h"
#include "tests/fuzz/seal_records.h"
#include "tests/support/describe.h"
#include "tests/support/memory_sink.h"
#include "tools/cli/rewrite/recovery.h"

namespace convtrace {
namespace {

using reader::MemorySource;
using reader::OpenPolicy;

void read_trace(const std::vector<std::byte>& bytes, OpenPolicy policy, unsigned threads) {
  auto opened = reader::TraceReader::open(std::make_unique<MemorySource>(bytes), policy, threads);
  if (!opened.ok()) return;
  opened.value()->refresh(true);
  // Describing touches every byte that an event gives access to.
  while (const format::Event* event = opened.value()->next()) (void)test::describe(*event);
  (void)opened.value()->counts();
}

void recover(const std::vector<std::byte>& bytes) {
  auto opened =
      reader::TraceContainer::open(std::make_unique<MemorySource>(bytes), OpenPolicy::kIndexOrScan);
  if (!opened.ok()) return;
  const test::SharedBytes out = std::make_shared<std::vector<std::byte>>();
  const auto recovered =
      tools::recover(*opened.value(), std::make_unique<test::MemorySink>(out), 1);
  if (!recovered.ok()) std::abort();
  const auto again =
      reader::TraceContainer::open(std::make_unique<MemorySource>(*out), OpenPolicy::kIndexOnly);
  if (!again.ok() || !again.value()->closed()) std::abort();
}

void use(const std::vector<std::byte>& bytes) {
  read_trace(bytes, OpenPolicy::kIndexOrScan, 1);
  read_trace(bytes, OpenPolicy::kScan, 2);
  read_trace(bytes, OpenPolicy::kLive, 1);
  (void)reader::check_trace(MemorySource(bytes));
  recover(bytes);
}

}  // namespace
}  // namespace convtrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<std::byte> bytes(input.begin(), input.end());
  convtrace::use(bytes);
  convtrace::test::seal_trace(bytes);
  convtrace::use(bytes);
  return 0;
}
