#include "cupti/memory_recorder.h"

#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/cupti/collecting_sink.h"

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

MemoryChange change(Kind kind, uint64_t address, uint64_t bytes = 0,
                    MemorySource memory = MemorySource::kDriver) {
  return {kind, memory, address, bytes, 0, nullptr};
}

struct Scene {
  void alloc(uint64_t address, uint64_t bytes, MemorySource memory = MemorySource::kDriver) {
    recorder.leave(change(Kind::kAlloc, address, bytes, memory), at, true, 0);
  }
  void free(uint64_t address, MemorySource memory = MemorySource::kDriver, bool succeeds = true) {
    const MemoryChange freed = change(Kind::kFree, address, 0, memory);
    const uint64_t ended = recorder.enter(freed, at);
    recorder.leave(freed, at, succeeds, ended);
  }

  AddressMap addresses;
  CollectingSink sink;
  MemoryRecorder recorder{addresses, sink};
  MemoryRecorder::At at{{format::Device::Type::kCuda, 1}, 7, false};
};

TEST_CASE("memory_recorder: an allocation and its free share a generation", "[memory_recorder]") {
  Scene scene;
  scene.alloc(0x1000, 64);
  scene.free(0x1000);
  const auto allocs = scene.sink.all<format::Alloc>();
  const auto frees = scene.sink.all<format::Free>();
  REQUIRE(allocs.size() == 1);
  REQUIRE(frees.size() == 1);
  CHECK(allocs[0].generation == frees[0].generation);
  CHECK(frees[0].bytes == 64);
  CHECK(allocs[0].device == format::Device{format::Device::Type::kCuda, 1});
  CHECK(allocs[0].header.step == 7);
}

TEST_CASE("memory_recorder: a free ends its generation when the call begins", "[memory_recorder]") {
  Scene scene;
  scene.alloc(0x1000, 64);
  const MemoryChange freed = change(Kind::kFree, 0x1000);
  const uint64_t ended = scene.recorder.enter(freed, scene.at);
  scene.alloc(0x1000, 64);  // another thread is handed the address before the call returns
  scene.recorder.leave(freed, scene.at, true, ended);
  CHECK(scene.addresses.find(0x1000)->freed == false);
  CHECK(scene.addresses.find(0x1000)->generation == 2);
  CHECK(scene.sink.all<format::Free>().size() == 1);
}

TEST_CASE("memory_recorder: memory whose free failed lives again", "[memory_recorder]") {
  Scene scene;
  scene.alloc(0x1000, 64);
  scene.free(0x1000, MemorySource::kDriver, false);
  REQUIRE(scene.addresses.find(0x1000).has_value());
  CHECK_FALSE(scene.addresses.find(0x1000)->freed);
  CHECK(scene.sink.all<format::Alloc>().size() == 2);
}

TEST_CASE("memory_recorder: a free of memory never seen has generation 0; of null, nothing",
          "[memory_recorder]") {
  Scene scene;
  scene.free(0x5000);
  scene.free(0);
  scene.free(0x6000, MemorySource::kDriver, false);
  const auto frees = scene.sink.all<format::Free>();
  REQUIRE(frees.size() == 1);
  CHECK(frees[0].generation == 0);
  CHECK(frees[0].address == 0x5000);
}

TEST_CASE("memory_recorder: pool memory may be freed by the plain call, and the other way round",
          "[memory_recorder]") {
  Scene scene;
  scene.alloc(0x1000, 64, MemorySource::kStreamOrdered);
  scene.free(0x1000, MemorySource::kDriver);
  scene.alloc(0x2000, 64, MemorySource::kDriver);
  scene.free(0x2000, MemorySource::kStreamOrdered);
  CHECK(scene.addresses.live_count() == 0);
  CHECK(scene.sink.all<format::Free>().size() == 2);
}

TEST_CASE("memory_recorder: one unmap ends every mapping in its range", "[memory_recorder]") {
  Scene scene;
  scene.alloc(0x10000, 0x1000, MemorySource::kVirtual);
  scene.alloc(0x11000, 0x1000, MemorySource::kVirtual);
  scene.alloc(0x12000, 0x1000, MemorySource::kVirtual);
  scene.recorder.leave(change(Kind::kUnmap, 0x10000, 0x2000, MemorySource::kVirtual), scene.at,
                       true, 0);
  CHECK(scene.sink.all<format::Free>().size() == 2);
  CHECK(scene.addresses.live_count() == 1);
}

TEST_CASE("memory_recorder: pinned memory belongs to the host", "[memory_recorder]") {
  Scene scene;
  scene.alloc(0x1000, 64, MemorySource::kHost);
  CHECK(scene.sink.all<format::Alloc>()[0].device == format::Device{});
}

TEST_CASE("memory_recorder: copies and sets are events of their own", "[memory_recorder]") {
  Scene scene;
  MemoryChange copy = change(Kind::kCopy, 0x1000, 64);
  copy.source = 0x2000;
  scene.recorder.leave(copy, scene.at, true, 0);
  scene.recorder.leave(copy, scene.at, false, 0);
  const auto copies = scene.sink.all<format::Copy>();
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].source == 0x2000);
  CHECK(copies[0].bytes == 64);
}

}  // namespace
}  // namespace convtrace::cupti
