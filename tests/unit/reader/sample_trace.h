#pragma once
/// @file sample_trace.h
/// A small closed trace of which everything is known: bytes, events, and where its records lie.

#include <string>
#include <vector>

#include "format/file/layout.h"
#include "reader/trace_reader.h"

namespace convtrace::test {

struct SampleTrace {
  std::vector<std::byte> bytes;
  std::vector<std::string> events;           ///< describe() of each, by seq
  std::vector<format::RecordEntry> records;  ///< all, with INDEX and FOOTER
  std::vector<uint64_t> first_seq;           ///< per record: of its first event
};

/// @param chunks, events_per_chunk  every chunk but the first needs definitions that only its own
/// DEFS brings.
[[nodiscard]] SampleTrace make_sample_trace(uint64_t seed, int chunks, int events_per_chunk);

/// What a reader makes of some bytes.
struct ReadResult {
  Status opened;
  reader::TraceState state = reader::TraceState::kDamaged;
  std::vector<std::string> events;
  uint64_t without_definition = 0;
  reader::RecordCounts counts;
  size_t problems = 0;
};
[[nodiscard]] ReadResult read_all(std::vector<std::byte> bytes,
                                  reader::OpenPolicy policy = reader::OpenPolicy::kIndexOrScan,
                                  unsigned threads = 1);
[[nodiscard]] ReadResult read_all(std::unique_ptr<reader::ByteSource> source,
                                  reader::OpenPolicy policy = reader::OpenPolicy::kIndexOrScan,
                                  unsigned threads = 1);

}  // namespace convtrace::test
