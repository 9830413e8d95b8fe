// Hostile and newer chunks: FORMAT.md sections 6, 8 and 9.

#include "reader/event_decoder.h"

#include <functional>

#include "format/layout.h"
#include "format/schema/chunk_generated.h"
#include "tests/support/catch.h"

namespace convtrace {
namespace {

namespace wire = format::wire;
using reader::EventDecoder;

/// A payload that a writer of our version would not make.
class Chunk {
 public:
  explicit Chunk(const std::function<void(wire::ChunkT&)>& change) {
    wire::ChunkT chunk;
    change(chunk);
    count_ = static_cast<uint32_t>(chunk.kind.size());
    wire::FinishChunkBuffer(builder_, wire::Chunk::Pack(builder_, &chunk));
  }
  [[nodiscard]] Bytes bytes() const {
    return std::as_bytes(std::span(builder_.GetBufferPointer(), builder_.GetSize()));
  }
  [[nodiscard]] Status load(EventDecoder& decoder) const { return decoder.load(bytes(), count_); }
  [[nodiscard]] StatusCode code() const {
    EventDecoder decoder;
    return load(decoder).code;
  }

 private:
  flatbuffers::FlatBufferBuilder builder_;
  uint32_t count_ = 0;
};

wire::StatsColumnsT& with_stats(wire::ChunkT& chunk, size_t rows) {
  chunk.kind.assign(rows, 1);
  chunk.stats = std::make_unique<wire::StatsColumnsT>();
  return *chunk.stats;
}

TEST_CASE("event decoder: absent columns read as zeros", "[reader]") {
  const Chunk chunk([](wire::ChunkT& c) {
    c.first_seq = 40;
    c.kind = {0};
    c.launch = std::make_unique<wire::LaunchColumnsT>();
    c.launch->stream = {77};
  });
  EventDecoder decoder;
  REQUIRE(chunk.load(decoder).ok());
  format::Event event;
  REQUIRE(decoder.next(event) == EventDecoder::Outcome::kEvent);
  const auto& launch = std::get<format::Launch>(event);
  CHECK(launch.header.seq == 40);
  CHECK(launch.stream == 77);
  CHECK(launch.grid[0] == 0);
  CHECK(launch.operands.empty());
  CHECK(decoder.next(event) == EventDecoder::Outcome::kEnd);
}

TEST_CASE("event decoder: columns that do not fit their events are damage", "[reader][limits]") {
  CHECK(Chunk([](wire::ChunkT& c) { c.kind = {0}; }).code() == StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) {
          c.kind = {6};
          c.step = {1, 2};
        }).code() == StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) {
          c.kind = {0};
          c.launch = std::make_unique<wire::LaunchColumnsT>();
          c.launch->operand_count = {2};
          c.launch->operand_address = {1};
        }).code() == StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) {
          c.kind = {7, 7};
          c.finding.push_back(std::make_unique<wire::FindingT>());
        }).code() == StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) { with_stats(c, 1).samples = {1}; }).code() ==
        StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) { with_stats(c, 1).sample_bytes = {1}; }).code() ==
        StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) {
          with_stats(c, 2).leading_bytes = {UINT32_MAX, 2};
          c.stats->leading = {1};
        }).code() == StatusCode::kCorrupt);
  CHECK(Chunk([](wire::ChunkT& c) {
          with_stats(c, 1).capture = {1};  // stats without values
        }).code() == StatusCode::kCorrupt);
}

TEST_CASE("event decoder: per-event limits hold", "[reader][limits]") {
  const auto with_rank = [](uint8_t rank) {
    return Chunk([rank](wire::ChunkT& c) {
             with_stats(c, 1).rank = {rank};
             if (rank != 255) c.stats->shape.resize(rank);
           })
        .code();
  };
  CHECK(with_rank(format::kMaxDims) == StatusCode::kOk);
  CHECK(with_rank(format::kMaxDims + 1) == StatusCode::kCorrupt);
  CHECK(with_rank(255) == StatusCode::kOk);

  const auto with_ranges = [](uint16_t count) {
    return Chunk([count](wire::ChunkT& c) {
             with_stats(c, 1).range_count = {count};
             c.stats->range_hashes.resize(count);
           })
        .code();
  };
  CHECK(with_ranges(format::kMaxRanges) == StatusCode::kOk);
  CHECK(with_ranges(format::kMaxRanges + 1) == StatusCode::kCorrupt);

  const auto with_message = [](size_t size) {
    return Chunk([size](wire::ChunkT& c) {
             c.kind = {8};
             c.diagnostic.push_back(std::make_unique<wire::DiagnosticT>());
             c.diagnostic[0]->message.assign(size, 'x');
           })
        .code();
  };
  CHECK(with_message(64 * 1024) == StatusCode::kOk);
  CHECK(with_message(64 * 1024 + 1) == StatusCode::kCorrupt);
}

TEST_CASE("event decoder: the number of events must be what the header says", "[reader][limits]") {
  const Chunk chunk([](wire::ChunkT& c) {
    c.kind = {6, 6};
    c.step_mark = std::make_unique<wire::StepColumnsT>();
    c.step_mark->index = {1, 2};
  });
  EventDecoder decoder;
  CHECK(decoder.load(chunk.bytes(), 2).ok());
  CHECK(decoder.load(chunk.bytes(), 1).code == StatusCode::kCorrupt);
  CHECK(decoder.load(chunk.bytes(), 3).code == StatusCode::kCorrupt);
  CHECK(decoder.load(chunk.bytes(), format::kMaxChunkEvents + 1).code ==
        StatusCode::kLimitExceeded);
  format::Event event;
  CHECK(decoder.next(event) == EventDecoder::Outcome::kEnd);
}

TEST_CASE("event decoder: kinds and enumerators of a newer version are passed over one by one",
          "[reader]") {
  const Chunk chunk([](wire::ChunkT& c) {
    c.kind = {6, 200, 4, 6};
    c.t_delta_ns = {10, 1, 1, 1};
    c.copy = std::make_unique<wire::CopyColumnsT>();
    c.copy->kind = {2};
    c.step_mark = std::make_unique<wire::StepColumnsT>();
    c.step_mark->index = {1, 2};
  });
  EventDecoder decoder;
  REQUIRE(chunk.load(decoder).ok());
  format::Event event;
  CHECK(decoder.next(event) == EventDecoder::Outcome::kEvent);
  CHECK(decoder.next(event) == EventDecoder::Outcome::kNotUnderstood);
  CHECK(decoder.next(event) == EventDecoder::Outcome::kNotUnderstood);
  REQUIRE(decoder.next(event) == EventDecoder::Outcome::kEvent);
  CHECK(std::get<format::Step>(event).index == 2);
  CHECK(std::get<format::Step>(event).header.seq == 3);
  CHECK(std::get<format::Step>(event).header.t_ns == 13);
}

TEST_CASE("event decoder: any cut or flipped byte of a payload is survived", "[reader][recovery]") {
  const Chunk chunk([](wire::ChunkT& c) {
    c.kind = {1, 7, 0};
    c.stats = std::make_unique<wire::StatsColumnsT>();
    c.stats->rank = {2};
    c.stats->shape = {3, 4};
    c.finding.push_back(std::make_unique<wire::FindingT>());
    c.finding[0]->message = "text";
    c.launch = std::make_unique<wire::LaunchColumnsT>();
    c.launch->operand_count = {1};
    c.launch->operand_address = {5};
  });
  const std::vector<std::byte> good(chunk.bytes().begin(), chunk.bytes().end());
  EventDecoder decoder;
  format::Event event;
  size_t refused = 0;
  const auto drain = [&](Bytes bytes) {
    refused += !decoder.load(bytes, 3).ok();
    int events = 0;
    while (decoder.next(event) != EventDecoder::Outcome::kEnd) ++events;
    REQUIRE(events <= 3);
  };
  for (size_t size = 0; size < good.size(); ++size) drain(Bytes(good).first(size));
  CHECK(refused > good.size() / 2);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    drain(bad);
  }
}

}  // namespace
}  // namespace convtrace
