// Hostile and newer chunks: FORMAT.md sections 6, 8 and 9.

#include "reader/event_decoder.h"

#include <random>

#include "format/layout.h"
#include "tests/support/catch.h"
#include "tests/unit/reader/chunk_maker.h"

namespace convtrace {
namespace {

using format::wire::zigzag;
using reader::EventDecoder;
using test::ChunkMaker;
using test::packed;
using test::with_launches;
using test::with_stats;
namespace wire = format::wire;

constexpr StatusCode kOk = StatusCode::kOk, kCorrupt = StatusCode::kCorrupt;

TEST_CASE("event decoder: absent columns read as zeros", "[reader]") {
  const ChunkMaker chunk([](wire::ChunkT& c) {
    c.first_seq = 40;
    c.first_t_ns = 5;
    with_launches(c, 1).stream = packed({77});
  });
  EventDecoder decoder;
  REQUIRE(chunk.load(decoder).ok());
  format::Event event;
  REQUIRE(decoder.next(event) == EventDecoder::Outcome::kEvent);
  const auto& launch = std::get<format::Launch>(event);
  CHECK(launch.header.seq == 40);
  CHECK(launch.header.t_ns == 5);
  CHECK(launch.stream == 77);
  CHECK(launch.grid[0] == 0);
  CHECK(launch.operands.empty());
  CHECK(decoder.next(event) == EventDecoder::Outcome::kEnd);
}

/// Launches of three operands and allocations in any order, and what FORMAT.md 6.3 makes of them,
/// operand by operand.
struct RandomLaunches {
  struct Expected {
    uint64_t address = 0, generation = 0;
    bool moved = false;
  };
  static constexpr size_t kOperands = 3;
  std::vector<uint8_t> kinds;
  std::vector<uint64_t> back, addresses, generations, allocs;
  std::vector<std::array<Expected, kOperands>> launches;
  std::vector<uint64_t> newest_of;

  explicit RandomLaunches(std::mt19937_64& random) {
    uint64_t newest = 0, distance = 0;
    for (int event = 0; event < 100; ++event) {
      if (random() % 3 == 0) {
        kinds.push_back(2);
        allocs.push_back(zigzag(random() % 2));
        newest += allocs.back() / 2;
        continue;
      }
      kinds.push_back(0);
      const uint64_t before = distance;
      if (random() % 4 == 0) distance = random() % (launches.size() + 1);
      back.push_back(zigzag(distance - before));
      add_launch(distance, newest, random);
    }
  }

  void add_launch(uint64_t distance, uint64_t newest, std::mt19937_64& random) {
    const size_t row = launches.size();
    std::array<Expected, kOperands> now{};
    for (size_t i = 0; i < kOperands; ++i) {
      const Expected like = distance == 0 ? Expected{} : launches[row - distance][i];
      const uint64_t aged = like.moved ? newest - newest_of[row - distance] : 0;
      addresses.push_back(random() % 4 == 0 ? zigzag(random() % 9 - 4) : 0);
      generations.push_back(random() % 4 == 0 ? zigzag(random() % 9 - 4) : 0);
      now[i].address = like.address + wire::unzigzag(addresses.back());
      now[i].generation = like.generation + aged + wire::unzigzag(generations.back());
      now[i].moved = distance != 0 && now[i].generation != like.generation;
    }
    launches.push_back(now);
    newest_of.push_back(newest);
  }

  [[nodiscard]] ChunkMaker chunk() const {
    return ChunkMaker([this](wire::ChunkT& c) {
      c.kind = kinds;
      c.alloc = std::make_unique<wire::MemoryColumnsT>();
      c.alloc->generation = packed(allocs);
      c.launch = std::make_unique<wire::LaunchColumnsT>();
      c.launch->back = packed(back);
      std::vector<uint64_t> counts;
      for (size_t row = 0, last = 0; row < back.size(); ++row) {
        last += wire::unzigzag(back[row]);
        if (last == 0) counts.push_back(kOperands);
      }
      c.launch->operand_count = packed(counts);
      c.launch->operand_address = packed(addresses);
      c.launch->operand_generation = packed(generations);
    });
  }
};

TEST_CASE("event decoder: operands are predicted from those of any launch before", "[reader]") {
  std::mt19937_64 random(7);
  EventDecoder decoder;
  for (int trial = 0; trial < 300; ++trial) {
    const RandomLaunches made(random);
    const ChunkMaker chunk = made.chunk();  // the decoder borrows its bytes
    REQUIRE(chunk.load(decoder).ok());
    format::Event event;
    for (size_t row = 0; decoder.next(event) == EventDecoder::Outcome::kEvent;) {
      const auto* launch = std::get_if<format::Launch>(&event);
      if (launch == nullptr) continue;
      REQUIRE(launch->operands.size() == RandomLaunches::kOperands);
      for (size_t i = 0; i < launch->operands.size(); ++i) {
        REQUIRE(launch->operands[i].address == made.launches[row][i].address);
        REQUIRE(launch->operands[i].generation == made.launches[row][i].generation);
      }
      ++row;
    }
  }
}

TEST_CASE("event decoder: a row may not be like one that is not before it", "[reader][limits]") {
  const auto with_back = [](const std::vector<uint64_t>& differences) {
    return ChunkMaker([&](wire::ChunkT& c) {
             with_launches(c, differences.size()).back = packed(differences);
           })
        .code();
  };
  CHECK(with_back({0, zigzag(1), zigzag(1)}) == kOk);     // 0, 1, 2
  CHECK(with_back({0, zigzag(2)}) == kCorrupt);           // before the first
  CHECK(with_back({zigzag(1)}) == kCorrupt);              // the first
  CHECK(with_back({0, zigzag(UINT64_MAX)}) == kCorrupt);  // after itself
  CHECK(with_back({0, zigzag(1), zigzag(0 - 2ull)}) == kCorrupt);
}

TEST_CASE("event decoder: columns that do not fit their events are damage", "[reader][limits]") {
  const auto code = [](const std::function<void(wire::ChunkT&)>& change) {
    return ChunkMaker(change).code();
  };
  CHECK(code([](auto& c) { c.kind = {0}; }) == kCorrupt);  // no table
  CHECK(code([](auto& c) {
          c.kind = {6};
          c.step = packed({1, 2});
        }) == kCorrupt);
  CHECK(code([](auto& c) {
          c.kind = {6};
          c.thread = packed({uint64_t{1} << 32});
        }) == kCorrupt);
  // Two launches, one signature: fixed columns have one row.
  CHECK(code([](auto& c) { with_launches(c, 2).kernel = packed({1}); }) == kOk);
  CHECK(code([](auto& c) { with_launches(c, 2).kernel = packed({1, 2}); }) == kCorrupt);
  CHECK(code([](auto& c) { with_launches(c, 1).kernel = packed({uint64_t{1} << 32}); }) ==
        kCorrupt);
  CHECK(code([](auto& c) {
          with_launches(c, 2).operand_count = packed({2});
          c.launch->operand_param = packed({1, 2});
          c.launch->operand_address = packed({1, 2, 3, 4});
        }) == kOk);
  CHECK(code([](auto& c) {
          with_launches(c, 2).operand_count = packed({2});
          c.launch->operand_address = packed({1, 2});
        }) == kCorrupt);
  CHECK(code([](auto& c) {
          with_launches(c, 2).operand_count = packed({2});
          c.launch->operand_param = packed({1, 2, 3, 4});
        }) == kCorrupt);
  CHECK(code([](auto& c) {
          c.kind = {7, 7};
          c.finding.push_back(std::make_unique<wire::FindingT>());
        }) == kCorrupt);
  CHECK(code([](auto& c) { with_stats(c, 1); }) == kOk);
  CHECK(code([](auto& c) { with_stats(c, 1).hash = {}; }) == kCorrupt);
  CHECK(code([](auto& c) { with_stats(c, 1).samples = {1}; }) == kCorrupt);
  CHECK(code([](auto& c) { with_stats(c, 1).sample_bytes = packed({1}); }) == kCorrupt);
  CHECK(code([](auto& c) {
          with_stats(c, 2).leading_bytes = packed({UINT32_MAX, 2});
          c.stats->leading = {1};
        }) == kCorrupt);
  CHECK(code([](auto& c) { with_stats(c, 1).l2 = packed({1, 2}); }) == kCorrupt);
}

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
  format::Event event;
  CHECK(decoder.next(event) == EventDecoder::Outcome::kEnd);

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

TEST_CASE("event decoder: kinds and enumerators of a newer version are passed over one by one",
          "[reader]") {
  const ChunkMaker chunk([](wire::ChunkT& c) {
    c.kind = {6, 200, 4, 6};
    c.first_t_ns = 10;
    c.time = packed({0, zigzag(1), zigzag(1), zigzag(1)});
    c.copy = std::make_unique<wire::CopyColumnsT>();
    c.copy->kind = packed({200});
    c.step_index = packed({1, 1});
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
  const ChunkMaker chunk([](wire::ChunkT& c) {
    with_stats(c, 2);
    c.kind.insert(c.kind.end(), {7, 0, 0});
    c.stats->back = packed({0, zigzag(1)});
    c.stats->rank = packed({2});
    c.stats->shape = packed({3, 4});
    c.stats->l2 = packed({1, 2});
    c.finding.push_back(std::make_unique<wire::FindingT>());
    c.finding[0]->message = "text";
    c.launch = std::make_unique<wire::LaunchColumnsT>();
    c.launch->back = packed({0, zigzag(1)});
    c.launch->operand_count = packed({1});
    c.launch->operand_address = packed({5, 0});
  });
  const std::vector<std::byte> good(chunk.bytes().begin(), chunk.bytes().end());
  EventDecoder decoder;
  format::Event event;
  size_t refused = 0;
  const auto drain = [&](Bytes bytes) {
    refused += !decoder.load(bytes, 5).ok();
    int events = 0;
    while (decoder.next(event) != EventDecoder::Outcome::kEnd) ++events;
    REQUIRE(events <= 5);
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
