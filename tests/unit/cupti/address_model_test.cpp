// The address map against a model that keeps all ranges in a list, and under many threads.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "cupti/memory/address_map.h"
#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

using format::MemorySource;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

/// The contract of address_map.h in the simplest form.
class Model {
 public:
  MemoryRange allocate(MemoryRange range) {
    for (Life& life : lives_) {
      const bool same = is_block(life.range) == is_block(range);
      const bool overlaps = life.range.base <= last(range) && range.base <= last(life.range);
      if (life.ended == 0 && same && overlaps) end(life);
    }
    range.generation = ++generations_;
    lives_.push_back({range, ++now_, 0});
    return range;
  }

  std::optional<MemoryRange> release(uint64_t base, MemorySource source) {
    for (Life& life : lives_) {
      if (life.ended != 0 || life.range.base != base || life.range.source != source) continue;
      end(life);
      return life.range;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<MemoryRange> find(uint64_t address) const {
    const Life *block = nullptr, *driver = nullptr, *freed = nullptr;
    for (const Life& life : lives_) {
      if (address < life.range.base || address > last(life.range)) continue;
      if (life.ended != 0) {
        if (freed == nullptr || life.ended > freed->ended) freed = &life;
      } else {
        (is_block(life.range) ? block : driver) = &life;
      }
    }
    if (block != nullptr) return block->range;
    if (driver == nullptr) return freed != nullptr ? std::optional(freed->range) : std::nullopt;
    MemoryRange range = driver->range;
    if (freed != nullptr && freed->ended > driver->begun)
      range.freed_block = freed->range.generation;
    return range;
  }

  [[nodiscard]] std::vector<MemoryRange> live() const {
    std::vector<MemoryRange> ranges;
    for (const Life& life : lives_) {
      if (life.ended == 0) ranges.push_back(life.range);
    }
    return ranges;
  }

 private:
  struct Life {
    MemoryRange range;
    uint64_t begun, ended;
  };
  static bool is_block(const MemoryRange& range) {
    return range.source == MemorySource::kFramework;
  }
  static uint64_t last(const MemoryRange& range) {
    return range.base + std::max<uint64_t>(range.bytes, 1) - 1;
  }
  void end(Life& life) {
    life.ended = ++now_;
    life.range.freed = true;
  }

  std::vector<Life> lives_;
  uint64_t generations_ = 0, now_ = 0;
};

bool same(const std::optional<MemoryRange>& a, const std::optional<MemoryRange>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->base == b->base && a->bytes == b->bytes && a->generation == b->generation &&
         a->source == b->source && a->freed == b->freed && a->freed_block == b->freed_block &&
         a->device == b->device && a->stream == b->stream;
}

/// Ranges as allocators make them and worse: from single bytes to many pages, packed and
/// overlapping, on both sides of the border between two leaves of the table.
class RandomRanges {
 public:
  explicit RandomRanges(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t bound) { return random_() % bound; }

  MemoryRange next() {
    MemoryRange range;
    const uint64_t scale = below(10);
    if (scale < 5) {  // a crowd in 64 KiB: pages split twice
      range.base = kCrowd + below(64 << 10);
      range.bytes = below(200);
    } else if (scale < 8) {
      range.base = kArena + below(64) * (kMiB / 2) + below(4) * 512;
      range.bytes = 1 + below(3 * kMiB / 2);
    } else {
      range.base = kArena + below(32) * kMiB;
      range.bytes = (1 + below(24)) * kMiB;
    }
    constexpr MemorySource kSources[] = {MemorySource::kFramework, MemorySource::kFramework,
                                         MemorySource::kDriver, MemorySource::kStreamOrdered};
    range.source = kSources[below(4)];
    range.stream = below(3);
    return range;
  }

 private:
  static constexpr uint64_t kArena = 64 * kGiB - 16 * kMiB;
  static constexpr uint64_t kCrowd = kArena + 5 * kMiB;
  std::mt19937_64 random_;
};

TEST_CASE("address_map: agrees with a simple model on random histories", "[address_map]") {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RandomRanges ranges(seed);
    AddressMap map;
    Model model;
    std::vector<uint64_t> edges;
    for (int i = 0; i < 1500; ++i) {
      const std::vector<MemoryRange> live = model.live();
      // Of late more is freed, so that parts of the table are merged again.
      if (!live.empty() && ranges.below(100) < (i < 1000 ? 40U : 70U)) {
        const MemoryRange& victim = live[ranges.below(live.size())];
        REQUIRE(same(map.release(victim.base, victim.source),
                     model.release(victim.base, victim.source)));
      } else {
        const MemoryRange range = ranges.next();
        REQUIRE(same(map.allocate(range), model.allocate(range)));
        edges.push_back(range.base);
        edges.push_back(range.base + range.bytes);
      }
      for (int probe = 0; probe < 12; ++probe) {
        const uint64_t address = edges.empty() ? kGiB
                                 : probe == 0  ? edges.back()
                                               : edges[ranges.below(edges.size())];
        const uint64_t near = address + ranges.below(3) - 1;
        INFO("seed " << seed << " operation " << i << " address " << near);
        const auto expected = model.find(near);
        REQUIRE(same(map.find(near), expected));
        REQUIRE(map.allocation_at(near).generation == (expected ? expected->generation : 0));
      }
      REQUIRE(map.live_count() == model.live().size());
    }
  }
}

/// Readers that run while `write` does, and count addresses at which `right` finds a wrong answer.
template <typename Right, typename Write>
uint64_t wrong_reads(const std::vector<uint64_t>& addresses, Right right, Write write) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        for (const uint64_t address : addresses) {
          if (!right(address)) wrong.fetch_add(1);
        }
        reads.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  while (reads.load() < 3) std::this_thread::yield();
  write();
  stop = true;
  for (auto& reader : readers) reader.join();
  return wrong.load();
}

template <typename Right, typename Write>
uint64_t wrong_answers(const AddressMap& map, const std::vector<uint64_t>& addresses, Right right,
                       Write write) {
  return wrong_reads(
      addresses, [&](uint64_t address) { return right(address, map.find(address)); }, write);
}

TEST_CASE("address_map: readers see whole ranges while others allocate and free",
          "[address_map][threads]") {
  AddressMap map;
  constexpr uint64_t kBase = 3 * kGiB;
  constexpr int kRounds = 3000;
  // Each writer has pages of its own; stream = base and device tell a torn answer from a whole one.
  const auto write = [&map](uint64_t writer) {
    std::mt19937_64 random(writer);
    const uint64_t page = kBase + writer * 8 * kMiB;
    for (int i = 0; i < kRounds; ++i) {
      MemoryRange range;
      range.base = page + random() % 64 * 512;
      range.bytes = 512 + random() % 3 * (2 * kMiB);
      range.source = random() % 2 == 0 ? MemorySource::kFramework : MemorySource::kDriver;
      range.stream = range.base ^ range.bytes;
      map.allocate(range);
      if (random() % 2 == 0) map.release(range.base, range.source);
    }
  };
  std::vector<uint64_t> addresses;
  for (uint64_t i = 0; i < 256; ++i) addresses.push_back(kBase + i * 256 + i % 2 * 8 * kMiB);
  const uint64_t wrong = wrong_answers(
      map, addresses,
      [](uint64_t address, const std::optional<MemoryRange>& found) {
        return !found || (found->stream == (found->base ^ found->bytes) &&
                          address - found->base < found->bytes && found->generation != 0);
      },
      [&write] {
        std::thread other(write, 1);
        write(0);
        other.join();
      });
  CHECK(wrong == 0);
}

TEST_CASE("address_map: a living range is found whatever happens around it",
          "[address_map][threads]") {
  AddressMap map;
  constexpr uint64_t kBase = 5 * kGiB, kPage = 2 * kMiB;
  MemoryRange segment;
  segment.base = kBase;
  segment.bytes = kPage;
  segment.generation = map.allocate(segment).generation;
  MemoryRange block;
  block.base = kBase + kMiB;
  block.bytes = 512;
  block.source = MemorySource::kFramework;
  block.generation = map.allocate(block).generation;
  const uint64_t wrong = wrong_answers(
      map, {block.base, block.base + 511, segment.base + kPage - 1},
      [&](uint64_t address, const std::optional<MemoryRange>& found) {
        const bool in_block = address - block.base < block.bytes;
        return found && found->generation == (in_block ? block : segment).generation;
      },
      [&map] {
        // The page is split and merged over and over; what it needed is recycled elsewhere.
        for (uint64_t round = 0; round < 60; ++round) {
          for (const uint64_t page : {kBase, kBase + kPage}) {
            MemoryRange small;
            small.bytes = 512;
            small.source = MemorySource::kFramework;
            for (uint64_t i = 0; i < 100; ++i) {
              small.base = page + i * 1024;
              map.allocate(small);
            }
            for (uint64_t i = 0; i < 100; ++i)
              map.release(page + i * 1024, MemorySource::kFramework);
          }
        }
      });
  CHECK(wrong == 0);
}

TEST_CASE("live_blocks: blocks that share an entry are never taken for each other",
          "[address_map][threads]") {
  LiveBlocks blocks;
  constexpr uint64_t kFirst = 7 * kGiB, kSecond = kFirst + 8;
  const auto is_of_second = [](uint64_t generation) { return generation % 2 != 0; };
  std::atomic<bool> first_seen{false}, second_seen{false};
  const uint64_t wrong = wrong_reads(
      {kFirst, kSecond},
      [&](uint64_t address) {
        const uint64_t generation = blocks.generation_at(address);
        if (generation == 0) return true;
        (address == kFirst ? first_seen : second_seen).store(true, std::memory_order_relaxed);
        return is_of_second(generation) == (address == kSecond);
      },
      [&] {
        uint64_t generation = 2;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        while (std::chrono::steady_clock::now() < end) {
          for (int i = 0; i < 1000; ++i, ++generation)
            blocks.begin(is_of_second(generation) ? kSecond : kFirst, generation);
        }
      });
  CHECK(wrong == 0);
  CHECK(first_seen.load());
  CHECK(second_seen.load());
}

TEST_CASE("address_map: a pointer to a block is none to its predecessor from its allocation on",
          "[address_map]") {
  AddressMap map;
  MemoryRange segment;
  segment.base = 9 * kGiB;
  segment.bytes = 2 * kMiB;
  const uint64_t segment_generation = map.allocate(segment).generation;
  MemoryRange block;
  block.bytes = 512;
  block.source = MemorySource::kFramework;
  for (uint64_t i = 0; i < 100'000;
       ++i) {  // more blocks than there are entries, some of which live on
    block.base = segment.base + i * 7 % 4096 * 512;
    const uint64_t generation = map.allocate(block).generation;
    REQUIRE(map.allocation_at(block.base).generation == generation);
    REQUIRE(map.allocation_at(block.base + 8).generation == generation);
    if (i % 3 == 0) continue;
    map.release(block.base, block.source);
    REQUIRE(map.allocation_at(block.base).generation == segment_generation);
  }
}

TEST_CASE("address_map: memory reused for hours takes no more than it did", "[address_map]") {
  AddressMap map;
  const auto work = [&map](uint64_t seed) {
    RandomRanges ranges(seed);
    for (int i = 0; i < 100'000; ++i) {
      const MemoryRange range = ranges.next();
      map.allocate(range);
      if (i % 4 != 0) map.release(range.base, range.source);
    }
    return map.bytes();
  };
  work(1);
  const uint64_t before = work(2);
  CHECK(work(3) < before + before / 8);
}

TEST_CASE("address_map: writers lose nothing to each other", "[address_map][threads]") {
  AddressMap map;
  constexpr uint64_t kCount = 5000;
  std::vector<std::thread> writers;
  for (uint64_t w = 1; w <= 3; ++w) {
    writers.emplace_back([&map, w] {
      MemoryRange range;
      range.bytes = 512;
      for (uint64_t i = 0; i < kCount; ++i) {
        range.base = w * kGiB + i * 512;
        map.allocate(range);
        if (i % 2 == 0) map.release(range.base, range.source);
      }
    });
  }
  for (auto& writer : writers) writer.join();
  CHECK(map.live_count() == 3 * kCount / 2);
  MemoryRange last;
  last.base = kGiB;
  last.bytes = 1;
  CHECK(map.allocate(last).generation == 3 * kCount + 1);
}

}  // namespace
}  // namespace convtrace::cupti
