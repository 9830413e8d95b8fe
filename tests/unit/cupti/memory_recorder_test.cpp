#include "cupti/observe/memory_recorder.h"

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

MemoryChange handle_change(Kind kind, uint64_t handle) {
  MemoryChange result = change(kind, 0);
  result.handle = handle;
  return result;
}

struct RecorderScene {
  void alloc(uint64_t address, uint64_t bytes, MemorySource memory = MemorySource::kDriver) {
    recorder.leave(change(Kind::kAlloc, address, bytes, memory), at, true, 0);
  }
  void free(uint64_t address, MemorySource memory = MemorySource::kDriver, bool succeeds = true) {
    const MemoryChange freed = change(Kind::kFree, address, 0, memory);
    const uint64_t ended = recorder.enter(freed, at);
    recorder.leave(freed, at, succeeds, ended);
  }

  void unmap(uint64_t address, uint64_t bytes, bool succeeds = true) {
    const MemoryChange gone = change(Kind::kUnmap, address, bytes, MemorySource::kVirtual);
    const uint64_t ended = recorder.enter(gone, at);
    recorder.leave(gone, at, succeeds, ended);
  }
  void create(uint64_t handle, MemorySource memory,
              std::optional<format::Device> device = std::nullopt) {
    MemoryChange made = handle_change(Kind::kCreate, handle);
    made.memory = memory;
    made.device = device;
    recorder.leave(made, at, true, 0);
  }
  void map(uint64_t address, uint64_t handle) {
    MemoryChange mapped = change(Kind::kAlloc, address, 0x1000, MemorySource::kVirtual);
    mapped.handle = handle;
    recorder.leave(mapped, at, true, 0);
  }

  AddressMap addresses;
  CollectingSink sink;
  MemoryRecorder recorder{addresses, sink};
  MemoryRecorder::At at{{format::Device::Type::kCuda, 1}, 7, false};
};

TEST_CASE("memory_recorder: an allocation and its free share a generation", "[memory_recorder]") {
  RecorderScene scene;
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
  RecorderScene scene;
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
  RecorderScene scene;
  scene.alloc(0x1000, 64);
  scene.free(0x1000, MemorySource::kDriver, false);
  REQUIRE(scene.addresses.find(0x1000).has_value());
  CHECK_FALSE(scene.addresses.find(0x1000)->freed);
  CHECK(scene.sink.all<format::Alloc>().size() == 2);
}

TEST_CASE("memory_recorder: a free of memory never seen has generation 0; of null, nothing",
          "[memory_recorder]") {
  RecorderScene scene;
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
  RecorderScene scene;
  scene.alloc(0x1000, 64, MemorySource::kStreamOrdered);
  scene.free(0x1000, MemorySource::kDriver);
  scene.alloc(0x2000, 64, MemorySource::kDriver);
  scene.free(0x2000, MemorySource::kStreamOrdered);
  CHECK(scene.addresses.live_count() == 0);
  CHECK(scene.sink.all<format::Free>().size() == 2);
}

TEST_CASE("memory_recorder: imported memory is freed by the plain calls", "[memory_recorder]") {
  RecorderScene scene;
  scene.alloc(0x1000, 64, MemorySource::kForeign);
  scene.free(0x1000, MemorySource::kDriver);
  scene.alloc(0x1000, 0, MemorySource::kForeign);
  scene.free(0x1000, MemorySource::kStreamOrdered);
  CHECK(scene.addresses.live_count() == 0);
  const auto frees = scene.sink.all<format::Free>();
  REQUIRE(frees.size() == 2);
  CHECK(frees[0].source == MemorySource::kForeign);
  CHECK(frees[0].generation == 1);
  CHECK(frees[1].generation == 2);
}

TEST_CASE("memory_recorder: one unmap ends every mapping in its range", "[memory_recorder]") {
  RecorderScene scene;
  scene.alloc(0x10000, 0x1000, MemorySource::kVirtual);
  scene.alloc(0x11000, 0x1000, MemorySource::kVirtual);
  scene.alloc(0x12000, 0x1000, MemorySource::kVirtual);
  scene.unmap(0x10000, 0x2000);
  CHECK(scene.sink.all<format::Free>().size() == 2);
  CHECK(scene.addresses.live_count() == 1);
}

TEST_CASE("memory_recorder: an unmap ends its mappings when the call begins", "[memory_recorder]") {
  RecorderScene scene;
  scene.alloc(0x10000, 0x1000, MemorySource::kVirtual);
  const MemoryChange unmap = change(Kind::kUnmap, 0x10000, 0x1000, MemorySource::kVirtual);
  const uint64_t ended = scene.recorder.enter(unmap, scene.at);
  scene.alloc(0x10000, 0x1000, MemorySource::kVirtual);  // another thread maps there meanwhile
  scene.recorder.leave(unmap, scene.at, true, ended);
  CHECK(scene.sink.all<format::Free>().size() == 1);
  CHECK(scene.addresses.find(0x10000)->generation == 2);
  CHECK_FALSE(scene.addresses.find(0x10000)->freed);
}

TEST_CASE("memory_recorder: mappings whose unmap failed live again", "[memory_recorder]") {
  RecorderScene scene;
  scene.alloc(0x10000, 0x1000, MemorySource::kVirtual);
  scene.alloc(0x11000, 0x1000, MemorySource::kVirtual);
  scene.unmap(0x10000, 0x2000, false);
  CHECK(scene.addresses.live_count() == 2);
  CHECK(scene.sink.all<format::Alloc>().size() == 4);
  scene.unmap(0x10000, 0x2000);
  CHECK(scene.addresses.live_count() == 0);
}

TEST_CASE("memory_recorder: a mapping is what its physical memory is", "[memory_recorder]") {
  RecorderScene scene;
  scene.create(7, MemorySource::kVirtual, format::Device{format::Device::Type::kCuda, 3});
  scene.create(8, MemorySource::kMulticast);
  scene.map(0x10000, 7);
  scene.map(0x20000, 8);
  scene.map(0x30000, 9);  // made before we looked
  auto allocs = scene.sink.all<format::Alloc>();
  REQUIRE(allocs.size() == 3);
  CHECK(allocs[0].device.index == 3);
  CHECK(allocs[0].source == MemorySource::kVirtual);
  CHECK(allocs[1].source == MemorySource::kMulticast);
  CHECK(allocs[1].device.index == 1);  // the context's
  CHECK(allocs[2].source == MemorySource::kVirtual);

  // Retained once more, so that the second release is the last one.
  scene.recorder.leave(handle_change(Kind::kRetain, 7), scene.at, true, 0);
  scene.recorder.enter(handle_change(Kind::kRelease, 7), scene.at);
  scene.map(0x40000, 7);
  scene.recorder.enter(handle_change(Kind::kRelease, 7), scene.at);
  scene.map(0x50000, 7);
  allocs = scene.sink.all<format::Alloc>();
  CHECK(allocs[3].device.index == 3);
  CHECK(allocs[4].device.index == 1);
}

TEST_CASE("memory_recorder: a context takes what was allocated in it along", "[memory_recorder]") {
  RecorderScene scene;
  const auto other = reinterpret_cast<CUcontext>(uintptr_t{2});
  scene.at.context = other;
  scene.alloc(0x1000, 64);
  scene.alloc(0x9000, 64, MemorySource::kHost);
  scene.alloc(0x2000, 64);
  scene.free(0x2000);
  scene.alloc(0x2000, 64, MemorySource::kStreamOrdered);  // a pool's, and no context's
  scene.at.context = nullptr;
  scene.alloc(0x3000, 64);
  scene.recorder.context_ended(other, 8);
  const auto frees = scene.sink.all<format::Free>();
  REQUIRE(frees.size() == 3);
  CHECK(frees[1].address == 0x1000);
  CHECK(frees[1].header.step == 8);
  CHECK(frees[2].address == 0x9000);
  CHECK(scene.addresses.live_count() == 2);
}

TEST_CASE("memory_recorder: pinned memory belongs to the host", "[memory_recorder]") {
  RecorderScene scene;
  scene.alloc(0x1000, 64, MemorySource::kHost);
  CHECK(scene.sink.all<format::Alloc>()[0].device == format::Device{});
}

TEST_CASE("memory_recorder: copies and sets are events of their own", "[memory_recorder]") {
  RecorderScene scene;
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
