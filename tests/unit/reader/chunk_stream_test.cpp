#include "reader/chunk_stream.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "sample_trace.h"
#include "tests/support/catch.h"

namespace {

std::atomic<size_t> largest_allocation = SIZE_MAX;  ///< above it there is no memory

}  // namespace

// Not inlined, or g++ takes free() for a mismatch with new.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return bytes <= largest_allocation ? std::malloc(bytes) : nullptr;
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace convtrace::test {

TEST_CASE("chunk stream: chunks that memory is too short for are lost, in whichever thread",
          "[reader][threads]") {
  const unsigned threads = GENERATE(1u, 4u);
  const SampleTrace trace = make_sample_trace(7, 2, 100);
  constexpr size_t kMemory = 512;  // enough for what is said of each chunk
  const auto too_large = std::ranges::count_if(trace.records, [](const auto& record) {
    return record.header.kind == format::RecordKind::kEvents && record.header.raw_size > kMemory;
  });
  REQUIRE(too_large > 1);
  auto opened = reader::TraceContainer::open(std::make_unique<reader::MemorySource>(trace.bytes),
                                             reader::OpenPolicy::kIndexOrScan);
  REQUIRE(opened.ok());
  reader::TraceContainer& container = *opened.value();
  reader::ChunkStream chunks(container, threads);
  largest_allocation = kMemory;
  const reader::Chunk* chunk = nullptr;
  do {
    CHECK_NOTHROW(chunk = chunks.next());
  } while (chunk != nullptr);
  largest_allocation = SIZE_MAX;
  CHECK(container.counts().lost_records >= static_cast<uint64_t>(too_large));
  REQUIRE_FALSE(container.problems().empty());
  CHECK(container.problems().kept().front().text == "not enough memory for the record payload");
  chunks.rewind();
  CHECK(chunks.next() != nullptr);
}

}  // namespace convtrace::test
