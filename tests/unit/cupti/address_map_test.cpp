#include "cupti/address_map.h"

#include <atomic>
#include <thread>
#include <vector>

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
  CHECK_FALSE(map.find(0x1000).has_value());
  map.allocate(range(0x1000, 0));
  CHECK(map.live_count() == 1);
  CHECK(map.release(0x1000, MemorySource::kDriver).has_value());
  map.allocate(range(UINT64_MAX - 15, 64));
  CHECK(map.find(UINT64_MAX - 8)->bytes == 64);
  CHECK_FALSE(map.find(0).has_value());
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

TEST_CASE("address_map: readers see whole ranges while others allocate and free", "[address_map]") {
  AddressMap map;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> torn{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        const auto found = map.find(0x1080);
        if (found && (found->base != 0x1000 || found->bytes != 256)) torn.fetch_add(1);
      }
    });
  }
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      const uint64_t base = 0x1000 * (w + 1);
      for (int i = 0; i < 5000; ++i) {
        map.allocate(range(base, 256));
        map.release(base, MemorySource::kDriver);
      }
    });
  }
  for (auto& writer : writers) writer.join();
  stop = true;
  for (auto& reader : readers) reader.join();
  CHECK(torn == 0);
  CHECK(map.live_count() == 0);
  CHECK(map.allocate(range(0x9000, 1)).generation == 10'001);
}

}  // namespace
}  // namespace convtrace::cupti
