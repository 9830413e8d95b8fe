// What a payload may hold at most: FORMAT.md section 9.

#include "format/file/layout.h"
#include "reader/event_decoder.h"
#include "tests/support/catch.h"
#include "tests/unit/reader/chunk_maker.h"

namespace convtrace {
namespace {

using reader::EventDecoder;
using test::ChunkMaker;
using test::kCorrupt;
using test::kOk;
using test::packed;
using test::with_launches;
using test::with_stats;
namespace wire = format::wire;

TEST_CASE("event decoder: operands that take no bytes are bounded all the same",
          "[reader][limits]") {
  const auto with_operands = [](uint64_t count, size_t launches) {
    return ChunkMaker(
               [&](wire::ChunkT& c) { with_launches(c, launches).operand_count = packed({count}); })
        .code();
  };
  constexpr size_t kMost = format::kMaxChunkOperands / format::kMaxOperands;
  CHECK(with_operands(format::kMaxOperands - 1, 1) == kOk);
  CHECK(with_operands(format::kMaxOperands, kMost - 1) == kOk);
  CHECK(with_operands(format::kMaxOperands, kMost) == kOk);
  CHECK(with_operands(format::kMaxOperands, kMost + 1) == kCorrupt);
  CHECK(with_operands(format::kMaxOperands + 1, 1) == kCorrupt);
}

TEST_CASE("event decoder: per-event limits hold", "[reader][limits]") {
  const auto with_rank = [](uint8_t rank) {
    return ChunkMaker([rank](wire::ChunkT& c) {
             with_stats(c, 1).rank = packed({rank});
             if (rank != 255) c.stats->shape = packed(std::vector<uint64_t>(rank, 1));
           })
        .code();
  };
  CHECK(with_rank(format::kMaxDims - 1) == kOk);
  CHECK(with_rank(format::kMaxDims) == kOk);
  CHECK(with_rank(format::kMaxDims + 1) == kCorrupt);
  CHECK(with_rank(255) == kOk);

  const auto with_ranges = [](uint16_t count) {
    return ChunkMaker([count](wire::ChunkT& c) {
             with_stats(c, 1).range_count = packed({count});
             c.stats->range_hashes.resize(count);
           })
        .code();
  };
  CHECK(with_ranges(format::kMaxRanges - 1) == kOk);
  CHECK(with_ranges(format::kMaxRanges) == kOk);
  CHECK(with_ranges(format::kMaxRanges + 1) == kCorrupt);

  const auto with_message = [](size_t size) {
    return ChunkMaker([size](wire::ChunkT& c) {
             c.kind = {8};
             c.diagnostic.push_back(std::make_unique<wire::DiagnosticT>());
             c.diagnostic[0]->message.assign(size, 'x');
           })
        .code();
  };
  CHECK(with_message(64 * 1024 - 1) == kOk);
  CHECK(with_message(64 * 1024) == kOk);
  CHECK(with_message(64 * 1024 + 1) == kCorrupt);
}

TEST_CASE("event decoder: texts that share bytes may not outgrow their payload",
          "[reader][limits]") {
  size_t at_limit = 0, beyond_by_one = 0;
  for (size_t size = 0; size < 2000; ++size) {
    const size_t own = size % 10, twice = size / 10;
    flatbuffers::FlatBufferBuilder builder;
    const auto shared = builder.CreateString(std::string(twice, 'x'));
    const auto site = builder.CreateString(std::string(own, 'y'));
    std::vector<flatbuffers::Offset<wire::Diagnostic>> rows;
    rows.push_back(wire::CreateDiagnostic(builder, 0, site, shared));
    rows.push_back(wire::CreateDiagnostic(builder, 0, 0, shared));
    const auto kinds = builder.CreateVector(std::vector<uint8_t>{8, 8});
    const auto diagnostics = builder.CreateVector(rows);
    wire::ChunkBuilder chunk(builder);
    chunk.add_kind(kinds);
    chunk.add_diagnostic(diagnostics);
    wire::FinishChunkBuffer(builder, chunk.Finish());
    const Bytes raw = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
    const size_t texts = 2 * twice + own;
    EventDecoder decoder;
    INFO(texts << " of " << raw.size());
    REQUIRE(decoder.load(raw, 2).ok() == (texts <= raw.size()));
    at_limit += texts == raw.size() ? 1 : 0;
    beyond_by_one += texts == raw.size() + 1 ? 1 : 0;
  }
  CHECK(at_limit > 0);
  CHECK(beyond_by_one > 0);
}

TEST_CASE("event decoder: the number of events must be what the header says", "[reader][limits]") {
  const ChunkMaker chunk([](wire::ChunkT& c) {
    c.kind = {6, 6};
    c.step_index = packed({1, 1});
  });
  EventDecoder decoder;
  CHECK(decoder.load(chunk.bytes(), 2).ok());
  CHECK(decoder.load(chunk.bytes(), 1).code == kCorrupt);
  CHECK(decoder.load(chunk.bytes(), 3).code == kCorrupt);
  CHECK(decoder.load(chunk.bytes(), format::kMaxChunkEvents + 1).code ==
        StatusCode::kLimitExceeded);
  CHECK(decoder.next().empty());

  const auto with_events = [](size_t count) {
    return ChunkMaker([count](wire::ChunkT& c) { c.kind.assign(count, 6); }).code();
  };
  CHECK(with_events(format::kMaxChunkEvents - 1) == kOk);
  CHECK(with_events(format::kMaxChunkEvents) == kOk);
  CHECK(with_events(format::kMaxChunkEvents + 1) == StatusCode::kLimitExceeded);
}

TEST_CASE("event decoder: rare events, tables each, are as many as events may be",
          "[reader][limits]") {
  for (const size_t count :
       {size_t{format::kMaxChunkEvents - 1}, size_t{format::kMaxChunkEvents}}) {
    const ChunkMaker chunk([count](wire::ChunkT& c) {
      c.kind.assign(count, 9);
      for (size_t i = 0; i < count; ++i) c.loss.push_back(std::make_unique<wire::LossT>());
    });
    CHECK(chunk.code() == kOk);
  }
}

TEST_CASE("event decoder: more tables than a payload may have are not even looked at",
          "[reader][limits]") {
  // The root, a table for each event, and findings that are no events: of those the columns tell.
  const auto with_tables = [](size_t count) {
    const ChunkMaker chunk([count](wire::ChunkT& c) {
      c.kind.assign(format::kMaxChunkEvents, 9);
      const auto add = [](auto& tables, size_t wanted) {
        using Table = typename std::remove_reference_t<decltype(tables)>::value_type::element_type;
        while (tables.size() < wanted) tables.push_back(std::make_unique<Table>());
      };
      add(c.loss, format::kMaxChunkEvents);
      add(c.finding, count - 1 - format::kMaxChunkEvents);
    });
    EventDecoder decoder;
    return std::string(chunk.load(decoder).site);
  };
  CHECK(with_tables(format::kMaxChunkEvents + 63) == "columns");
  CHECK(with_tables(format::kMaxChunkEvents + 64) == "columns");
  CHECK(with_tables(format::kMaxChunkEvents + 65) == "chunk");
}

}  // namespace
}  // namespace convtrace
