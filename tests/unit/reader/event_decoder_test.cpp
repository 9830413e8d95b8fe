// Hostile and newer chunks: FORMAT.md sections 6, 8 and 9.

#include "reader/event_decoder.h"

#include <random>

#include "format/file/layout.h"
#include "tests/support/catch.h"
#include "tests/unit/reader/chunk_maker.h"

namespace convtrace {
namespace {

using format::wire::zigzag;
using reader::EventDecoder;
using test::ChunkMaker;
using test::kCorrupt;
using test::kOk;
using test::packed;
using test::with_launches;
using test::with_stats;
namespace wire = format::wire;

/// @return the events of all batches that are left; what they refer to is valid until the next
/// load.
std::vector<format::Event> all_of(EventDecoder& decoder) {
  std::vector<format::Event> events;
  for (auto batch = decoder.next(); !batch.empty(); batch = decoder.next())
    events.insert(events.end(), batch.begin(), batch.end());
  return events;
}

TEST_CASE("event decoder: absent columns read as zeros", "[reader]") {
  const ChunkMaker chunk([](wire::ChunkT& c) {
    c.first_seq = 40;
    c.first_t_ns = 5;
    with_launches(c, 1).stream = packed({77});
  });
  EventDecoder decoder;
  REQUIRE(chunk.load(decoder).ok());
  const std::span<const format::Event> events = decoder.next();
  REQUIRE(events.size() == 1);
  const auto& launch = std::get<format::Launch>(events[0]);
  CHECK(launch.header.seq == 40);
  CHECK(launch.header.t_ns == 5);
  CHECK(launch.stream == 77);
  CHECK(launch.grid[0] == 0);
  CHECK(launch.operands.empty());
  CHECK(decoder.next().empty());
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
    size_t row = 0;
    for (const format::Event& event : all_of(decoder)) {
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

TEST_CASE("event decoder: a column of 8-byte numbers must be aligned", "[reader][recovery]") {
  const ChunkMaker chunk([](wire::ChunkT& c) { with_stats(c, 1).hash = {0x1122334455667788}; });
  const auto load_moved = [&chunk](size_t misalignment) {
    // The column again behind everything else, and the table pointed to it.
    std::vector<std::byte> bytes(chunk.bytes().begin(), chunk.bytes().end());
    const wire::StatsColumns* stats = wire::GetChunk(bytes.data())->stats();
    const auto field =
        static_cast<size_t>(reinterpret_cast<const std::byte*>(
                                reinterpret_cast<const flatbuffers::Table*>(stats)->GetAddressOf(
                                    wire::StatsColumns::VT_HASH)) -
                            bytes.data());
    bytes.resize((bytes.size() + 7) / 8 * 8 + 4 + misalignment);
    const size_t vector = bytes.size();
    bytes.resize(vector + sizeof(uint32_t) + sizeof(uint64_t));
    store_le<uint32_t>(bytes.data() + vector, 1);
    store_le<uint64_t>(bytes.data() + vector + sizeof(uint32_t), 7);
    store_le<uint32_t>(bytes.data() + field, static_cast<uint32_t>(vector - field));
    EventDecoder decoder;
    const Status loaded = decoder.load(bytes, 1);
    if (loaded.ok()) CHECK(std::get<format::TensorStats>(decoder.next()[0]).stats.hash == 7);
    return loaded.code;
  };
  CHECK(load_moved(0) == kOk);
  CHECK(load_moved(4) == kCorrupt);
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
  const std::span<const format::Event> events = decoder.next();
  REQUIRE(events.size() == 2);
  CHECK(std::get<format::Step>(events[0]).index == 1);
  CHECK(std::get<format::Step>(events[1]).index == 2);
  CHECK(std::get<format::Step>(events[1]).header.seq == 3);
  CHECK(std::get<format::Step>(events[1]).header.t_ns == 13);
  CHECK(decoder.not_understood() == 2);
  CHECK(decoder.next().empty());
}

TEST_CASE("event decoder: a batch of which nothing is understood is not the end", "[reader]") {
  constexpr size_t kNewer = 3 * EventDecoder::kBatch;
  const ChunkMaker chunk([](wire::ChunkT& c) {
    c.kind.assign(kNewer + 1, 200);
    c.kind.back() = 6;
    c.step_index = packed({7});
  });
  EventDecoder decoder;
  REQUIRE(chunk.load(decoder).ok());
  const std::span<const format::Event> events = decoder.next();
  REQUIRE(events.size() == 1);
  CHECK(std::get<format::Step>(events[0]).index == 7);
  CHECK(std::get<format::Step>(events[0]).header.seq == kNewer);
  CHECK(decoder.not_understood() == kNewer);
  CHECK(decoder.next().empty());
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
  size_t refused = 0;
  const auto drain = [&](Bytes bytes) {
    refused += !decoder.load(bytes, 5).ok();
    REQUIRE(all_of(decoder).size() + decoder.not_understood() <= 5);
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
