#include "format/findings/memory/life_table.h"

#include <algorithm>
#include <map>
#include <random>

#include "format/findings/memory/address_index.h"
#include "tests/support/catch.h"

using namespace convtrace;
using judge::AddressIndex;
using judge::Life;
using judge::LifeTable;
using Layer = LifeTable::Layer;

namespace {

format::Alloc allocation(uint64_t address, uint64_t bytes, uint64_t generation,
                         format::MemorySource source = format::MemorySource::kFramework) {
  format::Alloc event;
  event.address = address;
  event.bytes = bytes;
  event.generation = generation;
  event.source = source;
  return event;
}

format::Free release(uint64_t generation) {
  format::Free event;
  event.generation = generation;
  return event;
}

}  // namespace

TEST_CASE("address_index: finds what a map finds, however it was filled and emptied") {
  std::mt19937_64 random(GENERATE(1u, 2u, 3u));
  AddressIndex index;
  std::map<uint64_t, uint32_t> model;
  for (uint32_t i = 0; i < 20000; ++i) {
    const uint64_t key = random() % 5000 * 16;
    // Phases that grow and phases that shrink.
    if (random() % 100 < (i / 4000 % 2 == 0 ? 70u : 30u)) {
      index.put(key, i);
      model[key] = i;
    } else if (model.erase(key) != 0) {
      index.erase(key);
    }
    const uint64_t asked = random() % (5000 * 16);
    auto behind = model.upper_bound(asked);
    const uint32_t after = behind == model.end() ? AddressIndex::kNone : behind->second;
    const uint32_t before =
        behind == model.begin() ? AddressIndex::kNone : std::prev(behind)->second;
    if (index.after(asked) != after || index.at_or_before(asked) != before) FAIL("at change " << i);
  }
  CHECK(index.bytes() < 40 * std::max<size_t>(100, model.size()));
}

TEST_CASE("life_table: what is left of a freed life beside a new one is still what was freed") {
  LifeTable lives;
  std::vector<Life> before;
  lives.begin(allocation(0x1000, 0x1000, 1), before);
  REQUIRE(lives.end(release(1)) != nullptr);
  lives.begin(allocation(0x1400, 0x100, 2), before);
  REQUIRE(before.size() == 1);
  CHECK(before[0].generation == 1);
  for (const uint64_t address : {0x1000u, 0x13FFu, 0x1500u, 0x1FFFu}) {
    const Life* const life = lives.at(address, Layer::kBlock);
    REQUIRE(life != nullptr);
    CHECK(life->freed == 1);
    CHECK(life->generation == 1);
  }
  CHECK(lives.at(0x1400, Layer::kBlock)->generation == 2);
  CHECK(lives.at(0x2000, Layer::kBlock) == nullptr);
  CHECK(lives.living(1) == nullptr);
  CHECK(lives.living(2) != nullptr);
}

TEST_CASE("life_table: a life that another begins over has ended without being seen") {
  LifeTable lives;
  std::vector<Life> before;
  lives.begin(allocation(0x1000, 0x1000, 1), before);
  lives.begin(allocation(0x1800, 0x1000, 2), before);
  CHECK(before.empty());
  CHECK(lives.living(1) == nullptr);
  CHECK(lives.at(0x1000, Layer::kBlock) == nullptr);
}

TEST_CASE("life_table: of freed lives the last 65536 are kept, and memory is used again") {
  LifeTable lives;
  std::vector<Life> before;
  constexpr uint64_t kCount = 3 * LifeTable::kMostFreed;
  for (uint64_t i = 1; i <= kCount; ++i) {
    lives.begin(allocation(i * 0x1000, 0x1000, i), before);
    lives.end(release(i));
  }
  CHECK(lives.size() == LifeTable::kMostFreed);
  CHECK(lives.at(kCount * 0x1000, Layer::kBlock) != nullptr);
  CHECK(lives.at(0x1000, Layer::kBlock) == nullptr);
}

TEST_CASE("life_table: what takes the place of the oldest freed life is not forgotten with it") {
  LifeTable lives;
  std::vector<Life> before;
  const uint64_t bytes = GENERATE(0x800u, 0x1800u);  // leaves a part; takes a part of the next one
  for (uint64_t i = 1; i <= LifeTable::kMostFreed; ++i) {
    lives.begin(allocation(i * 0x1000, 0x1000, i), before);
    lives.end(release(i));
  }
  const uint64_t last = LifeTable::kMostFreed + 1;
  const Life* const begun = lives.begin(allocation(0x1000, bytes, last), before);
  REQUIRE(begun == lives.living(last));
  CHECK(lives.at(0x1000, Layer::kBlock) == begun);
  CHECK(begun->end() == 0x1000 + bytes);
  CHECK(lives.at(0x1000 + bytes, Layer::kBlock)->generation == (bytes < 0x1000 ? 1 : 2));
  CHECK(before[0].generation == 1);
}

TEST_CASE("life_table: ranges that no allocator gives are not kept") {
  LifeTable lives;
  std::vector<Life> before;
  CHECK(lives.begin(allocation(0x1000, uint64_t{1} << 45, 1), before) == nullptr);
  CHECK(lives.begin(allocation(~uint64_t{0} - 5, 10, 2), before) == nullptr);
  CHECK(lives.begin(allocation(0x1000, 16, 0), before) == nullptr);
  CHECK(lives.size() == 0);
}
