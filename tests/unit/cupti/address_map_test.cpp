#include "cupti/memory/address_map.h"

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

using format::MemorySource;

MemoryRange range(uint64_t base, uint64_t bytes, MemorySource source = MemorySource::kDriver) {
  MemoryRange result;
  result.base = base;
  result.bytes = bytes;
  result.source = source;
  return result;
}

TEST_CASE("address_map: every allocation starts a generation of its own", "[address_map]") {
  AddressMap map;
  CHECK(map.allocate(range(0x1000, 256)).generation == 1);
  CHECK(map.allocate(range(0x2000, 256)).generation == 2);
  CHECK(map.live_count() == 2);
}

TEST_CASE("address_map: a range holds its first and last byte and no other", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 256));
  CHECK(map.find(0x1000)->base == 0x1000);
  CHECK(map.find(0x10ff)->base == 0x1000);
  CHECK_FALSE(map.find(0x0fff).has_value());
  CHECK_FALSE(map.find(0x1100).has_value());
}

TEST_CASE("address_map: a framework block hides the driver segment below it", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x10000, 0x10000));
  map.allocate(range(0x12000, 0x1000, MemorySource::kFramework));
  CHECK(map.find(0x12800)->source == MemorySource::kFramework);
  CHECK(map.find(0x13000)->source == MemorySource::kDriver);
  map.release(0x12000, MemorySource::kFramework);
  CHECK(map.find(0x12800)->source == MemorySource::kDriver);
}

TEST_CASE("address_map: a block as large as its segment still hides it", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x10000, 0x1000));
  map.allocate(range(0x10000, 0x1000, MemorySource::kFramework));
  CHECK(map.find(0x10010)->source == MemorySource::kFramework);
}

TEST_CASE("address_map: a freed range is found, marked, until its memory lives again",
          "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 256));
  const auto freed = map.release(0x1000, MemorySource::kDriver);
  REQUIRE(freed.has_value());
  CHECK(freed->freed);
  REQUIRE(map.find(0x1080).has_value());
  CHECK(map.find(0x1080)->freed);
  CHECK(map.find(0x1080)->generation == 1);
  CHECK(map.live_count() == 0);

  map.allocate(range(0x1000, 256));
  CHECK_FALSE(map.find(0x1080)->freed);
  CHECK(map.find(0x1080)->generation == 2);
}

TEST_CASE("address_map: of overlapping freed ranges the one freed last is found", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 0x3000));
  map.release(0x1000, MemorySource::kDriver);
  map.allocate(range(0x2000, 0x1000));
  map.release(0x2000, MemorySource::kDriver);
  CHECK(map.find(0x1800)->generation == 1);
  CHECK(map.find(0x2800)->generation == 2);
  CHECK(map.find(0x3800)->generation == 1);
}

TEST_CASE("address_map: only a base of the same source can be released, and once",
          "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 256));
  CHECK_FALSE(map.release(0x1080, MemorySource::kDriver).has_value());
  CHECK_FALSE(map.release(0x1000, MemorySource::kFramework).has_value());
  CHECK(map.release(0x1000, MemorySource::kDriver).has_value());
  CHECK_FALSE(map.release(0x1000, MemorySource::kDriver).has_value());
}

TEST_CASE("address_map: an allocation ends the ranges whose free was not seen", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 0x1000));
  map.allocate(range(0x2000, 0x1000));
  map.allocate(range(0x4000, 0x1000));
  map.allocate(range(0x1800, 0x1000));  // overlaps the first two
  CHECK(map.live_count() == 2);
  CHECK(map.find(0x1400)->freed);
  CHECK(map.find(0x1900)->generation == 4);
  CHECK(map.find(0x2900)->freed);
  CHECK_FALSE(map.find(0x4000)->freed);
}

TEST_CASE("address_map: an allocation of another source ends nothing", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 0x1000));
  map.allocate(range(0x1000, 0x800, MemorySource::kFramework));
  CHECK(map.live_count() == 2);
}

TEST_CASE("address_map: empty and overlong ranges do no harm", "[address_map]") {
  AddressMap map;
  map.allocate(range(0x1000, 0));
  CHECK(map.find(0x1000)->bytes == 0);  // the size of imported memory is not told
  CHECK_FALSE(map.find(0x1001).has_value());
  map.allocate(range(0x1000, 0));
  CHECK(map.live_count() == 1);
  CHECK(map.release(0x1000, MemorySource::kDriver).has_value());
  for (const auto& [base, bytes] :
       {std::pair{UINT64_MAX - 15, uint64_t{64}}, std::pair{uint64_t{0x1000}, UINT64_MAX},
        std::pair{uint64_t{1} << 48, uint64_t{1}}}) {
    CHECK(map.allocate(range(base, bytes)).bytes == bytes);
    CHECK_FALSE(map.find(base + 8).has_value());
    CHECK_FALSE(map.release(base, MemorySource::kDriver).has_value());
  }
  CHECK(map.live_count() == 0);
  CHECK(map.allocate(range(0x1000, 1)).generation == 6);
}

TEST_CASE("address_map: the oldest freed ranges are forgotten first", "[address_map]") {
  constexpr uint64_t kFrees = 65 * 1024;
  AddressMap map;
  for (uint64_t i = 0; i < kFrees; ++i) {
    map.allocate(range((i + 1) * 0x1000, 0x1000));
    map.release((i + 1) * 0x1000, MemorySource::kDriver);
  }
  CHECK_FALSE(map.find(1 * 0x1000).has_value());
  CHECK_FALSE(map.find(1024 * 0x1000).has_value());
  REQUIRE(map.find(1025 * 0x1000).has_value());
  CHECK(map.find(1025 * 0x1000)->generation == 1025);
  CHECK(map.find(kFrees * 0x1000)->freed);
}

TEST_CASE("address_map: the tombstones of memory reused over and over stay bounded and right",
          "[address_map]") {
  AddressMap map;
  for (int i = 0; i < 200'000; ++i) {
    map.allocate(range(0x1000, 0x1000));
    map.release(0x1000, MemorySource::kDriver);
  }
  CHECK(map.find(0x1800)->generation == 200'000);
}

TEST_CASE("address_map: a block freed inside a living segment is told with the segment",
          "[address_map]") {
  AddressMap map;
  map.allocate(range(0x10000, 0x10000));
  const uint64_t block = map.allocate(range(0x12000, 0x1000, MemorySource::kFramework)).generation;
  CHECK(map.find(0x12800)->freed_block == 0);
  map.release(0x12000, MemorySource::kFramework);
  CHECK(map.find(0x12800)->source == MemorySource::kDriver);
  CHECK(map.find(0x12800)->freed_block == block);
  CHECK(map.find(0x13000)->freed_block == 0);
  map.allocate(range(0x12000, 0x800, MemorySource::kFramework));
  CHECK(map.find(0x12000)->freed_block == 0);
  CHECK(map.find(0x12800)->freed_block == block);
  map.release(0x10000, MemorySource::kDriver);
  CHECK(map.find(0x12800)->generation == 1);
  CHECK(map.find(0x12800)->freed);
}

TEST_CASE("address_map: a block that spans several mappings hides them all", "[address_map]") {
  AddressMap map;
  constexpr uint64_t kGranule = uint64_t{2} << 20, kBase = uint64_t{1} << 40;
  for (uint64_t i = 0; i < 4; ++i)
    map.allocate(range(kBase + i * kGranule, kGranule, MemorySource::kVirtual));
  const uint64_t block =
      map.allocate(range(kBase, 4 * kGranule, MemorySource::kFramework)).generation;
  CHECK(map.find(kBase + 3 * kGranule)->generation == block);
  map.release(kBase, MemorySource::kFramework);
  CHECK(map.find(kBase + 3 * kGranule)->generation == 4);
}

TEST_CASE("address_map: what a range says is what was said of it", "[address_map]") {
  AddressMap map;
  MemoryRange told = range(uint64_t{0x7f} << 40, uint64_t{3} << 30, MemorySource::kForeign);
  told.device = {format::Device::Type::kOther, 255};
  told.stream = UINT64_MAX;
  map.allocate(told);
  const auto found = map.find(told.base + told.bytes - 1);
  REQUIRE(found.has_value());
  CHECK(found->base == told.base);
  CHECK(found->bytes == told.bytes);
  CHECK(found->source == told.source);
  CHECK(found->device == told.device);
  CHECK(found->stream == told.stream);
  CHECK_FALSE(found->freed);
  CHECK_FALSE(map.find(told.base + told.bytes).has_value());
}

}  // namespace
}  // namespace convtrace::cupti
