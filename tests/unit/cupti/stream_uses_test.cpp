#include "cupti/values/stream_uses.h"

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

using format::SyncKind;

constexpr StreamUses::Stream kA{0x1000, 0}, kB{0x2000, 0}, kLegacyStream{0, 0};
constexpr uint64_t kEvent = 0x77;

struct StreamScene {
  uint64_t block(format::MemorySource source = format::MemorySource::kFramework) {
    MemoryRange range;
    range.base = next;
    range.bytes = 4096;
    range.source = source;
    next += 4096;
    return addresses.allocate(range).generation;
  }
  void launch(StreamUses::Stream stream, uint64_t generation) {
    format::Operand operand;
    operand.generation = generation;
    uses.launched(stream, {&operand, 1});
  }
  void tell(SyncKind kind, StreamUses::Stream stream, uint64_t event = 0) {
    format::Sync sync;
    sync.kind = kind;
    sync.stream = stream.handle;
    sync.device = stream.device;
    sync.event = event;
    uses.order(sync);
  }

  uint64_t next = 0x600000000000;
  AddressMap addresses;
  StreamUses uses{addresses};
};

TEST_CASE("stream_uses: with one stream all is in order", "[stream_uses]") {
  StreamScene scene;
  const uint64_t block = scene.block();
  scene.launch(kA, block);
  CHECK(scene.uses.is_settled(kA, block));
  CHECK(scene.uses.is_settled(kA, 0));
}

TEST_CASE("stream_uses: a block is read where it was used last, or behind an order",
          "[stream_uses]") {
  StreamScene scene;
  const uint64_t block = scene.block(), other = scene.block();
  scene.launch(kA, other);
  scene.launch(kB, block);
  CHECK(scene.uses.is_settled(kB, block));
  CHECK_FALSE(scene.uses.is_settled(kA, block));
  CHECK_FALSE(scene.uses.is_settled(kLegacyStream, block));
  CHECK_FALSE(scene.uses.is_settled(kA, 0));  // nothing is known of it
  scene.tell(SyncKind::kEventRecord, kB, kEvent);
  CHECK_FALSE(scene.uses.is_settled(kA, block));
  scene.tell(SyncKind::kStreamWait, kA, kEvent);
  CHECK(scene.uses.is_settled(kA, block));
  scene.launch(kB, block);  // behind the event
  CHECK_FALSE(scene.uses.is_settled(kA, block));
  CHECK(scene.uses.is_settled(kA, scene.block()));  // nobody has used it
}

TEST_CASE("stream_uses: what the host has waited for is over for all", "[stream_uses]") {
  const auto how = GENERATE(SyncKind::kStreamDone, SyncKind::kContextDone);
  StreamScene scene;
  const uint64_t block = scene.block();
  scene.launch(kA, scene.block());
  scene.launch(kB, block);
  scene.tell(how, kB);
  CHECK(scene.uses.is_settled(kA, block));
}

TEST_CASE("stream_uses: a device that was waited for says nothing of another", "[stream_uses]") {
  constexpr StreamUses::Stream kElsewhere{0x3000, 1};
  StreamScene scene;
  const uint64_t block = scene.block();
  scene.launch(kA, scene.block());
  scene.launch(kB, block);
  scene.launch(kElsewhere, scene.block());
  scene.tell(SyncKind::kContextDone, kElsewhere);
  CHECK_FALSE(scene.uses.is_settled(kA, block));
  // The legacy streams of two devices are two.
  const uint64_t third = scene.block();
  scene.launch({0, 1}, third);
  CHECK_FALSE(scene.uses.is_settled({0, 0}, third));
}

TEST_CASE("stream_uses: what cannot be told orders nothing", "[stream_uses]") {
  StreamScene scene;
  const uint64_t block = scene.block();
  scene.launch(kA, scene.block());
  scene.launch(kB, block);
  scene.tell(SyncKind::kStreamWait, kA, 0x99);  // an event from before
  scene.tell(SyncKind::kStreamWait, kA);        // for a value in memory
  scene.tell(SyncKind::kEventDone, kB, 0x99);
  scene.tell(SyncKind::kEventDone, kB);  // a function of the host, which runs when it runs
  CHECK_FALSE(scene.uses.is_settled(kA, block));
}

TEST_CASE("stream_uses: blocks from before the second stream were the first one's",
          "[stream_uses]") {
  StreamScene scene;
  const uint64_t block = scene.block();
  scene.launch(kA, block);
  scene.launch(kB, scene.block());
  CHECK(scene.uses.is_settled(kA, block));
  CHECK_FALSE(scene.uses.is_settled(kB, block));
  scene.tell(SyncKind::kStreamDone, kA);
  CHECK(scene.uses.is_settled(kB, block));
}

TEST_CASE("stream_uses: beyond what is remembered nothing is known", "[stream_uses]") {
  StreamScene scene;
  const uint64_t block = scene.block();
  scene.launch(kA, scene.block());
  scene.launch(kB, block);
  for (int i = 0; i < 70'000; ++i) scene.launch(kA, scene.block());
  CHECK_FALSE(scene.uses.is_settled(kB, block));
  const uint64_t young = scene.block();
  scene.launch(kB, young);
  CHECK(scene.uses.is_settled(kB, young));
}

TEST_CASE("stream_uses: a read is sound unless a use does not come behind it", "[stream_uses]") {
  StreamScene scene;
  const uint64_t block = scene.block(), other = scene.block();
  scene.launch(kA, block);
  scene.tell(SyncKind::kEventRecord, kA, kEvent);
  const auto early = scene.uses.begin_read(kA, block);  // while there is one stream
  scene.tell(SyncKind::kStreamWait, kB, kEvent);
  scene.launch(kB, other);
  const auto late = scene.uses.begin_read(kA, block);
  scene.launch(kA, block);
  scene.launch(kB, other);
  SECTION("nothing else used it") {
    CHECK(scene.uses.end_read(early));
    CHECK(scene.uses.end_read(late));
  }
  SECTION("an event from before both") {
    scene.launch(kB, block);
    CHECK_FALSE(scene.uses.end_read(early));
    CHECK_FALSE(scene.uses.end_read(late));
  }
  SECTION("an event from behind both") {
    scene.tell(SyncKind::kEventRecord, kA, kEvent);
    scene.tell(SyncKind::kStreamWait, kB, kEvent);
    scene.launch(kB, block);
    CHECK(scene.uses.end_read(late));
    CHECK(scene.uses.end_read(early));
    CHECK_FALSE(scene.uses.end_read(early));  // it is over
  }
}

TEST_CASE("stream_uses: the host reads what no copy is under way to", "[stream_uses]") {
  StreamScene scene;
  const uint64_t address = scene.next;
  const uint64_t pinned = scene.block(format::MemorySource::kHost);
  const uint64_t other = scene.block(format::MemorySource::kHost);
  CHECK(scene.uses.is_settled_on_host(pinned));
  scene.uses.wrote(kA, address);
  CHECK_FALSE(scene.uses.is_settled_on_host(pinned));
  CHECK(scene.uses.is_settled_on_host(other));
  scene.tell(SyncKind::kEventRecord, kA, kEvent);
  CHECK_FALSE(scene.uses.is_settled_on_host(pinned));
  scene.tell(SyncKind::kEventDone, kA, kEvent);
  CHECK(scene.uses.is_settled_on_host(pinned));
}

}  // namespace
}  // namespace convtrace::cupti
