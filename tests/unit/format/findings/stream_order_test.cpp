#include "format/findings/memory/stream_order.h"

#include "tests/support/catch.h"

using namespace convtrace;
using format::SyncKind;
using judge::StreamOrder;
using judge::Use;

namespace {

constexpr uint64_t kA = 0x100, kB = 0x200, kC = 0x300, kEvent = 0xE;
constexpr uint32_t kNonBlocking = 1;

/// Streams A and B are non-blocking, C is not.
struct Order {
  StreamOrder order;
  Order() {
    sync(SyncKind::kStreamCreate, kA, 0, kNonBlocking);
    sync(SyncKind::kStreamCreate, kB, 0, kNonBlocking);
    sync(SyncKind::kStreamCreate, kC);
    sync(SyncKind::kEventCreate, 0, kEvent);
  }
  void sync(SyncKind kind, uint64_t stream, uint64_t event = 0, uint32_t flags = 0) {
    format::Sync call;
    call.kind = kind;
    call.stream = stream;
    call.event = event;
    call.flags = flags;
    order.sync(call);
  }
  Use work(uint64_t stream, uint32_t thread = 1) {
    return order.work(order.slot_of(stream, thread));
  }
  /// Whether work put into `stream` now comes behind `use`.
  bool before(Use use, uint64_t stream) { return order.ordered(use, work(stream).stream); }
};

}  // namespace

TEST_CASE("stream_order: work of one stream is in order, of two streams is not") {
  Order o;
  const Use first = o.work(kA);
  CHECK(o.before(first, kA));
  CHECK_FALSE(o.before(first, kB));
  CHECK_FALSE(o.before(first, 0));
}

TEST_CASE("stream_order: an event orders what was in front of its record behind its wait") {
  Order o;
  const Use before = o.work(kA);
  o.sync(SyncKind::kEventRecord, kA, kEvent);
  const Use after = o.work(kA);
  o.sync(SyncKind::kStreamWait, kB, kEvent);
  CHECK(o.before(before, kB));
  CHECK_FALSE(o.before(after, kB));
  SECTION("and whoever waits for that stream waits for both") {
    o.sync(SyncKind::kEventRecord, kB, kEvent);
    o.sync(SyncKind::kStreamWait, kC, kEvent);
    CHECK(o.before(before, kC));
    CHECK_FALSE(o.before(after, kC));
  }
}

TEST_CASE("stream_order: a wait for an event that was never recorded orders nothing") {
  Order o;
  const Use use = o.work(kA);
  o.sync(SyncKind::kStreamWait, kB, kEvent);
  CHECK_FALSE(o.before(use, kB));
}

TEST_CASE("stream_order: what the host waited for is done for all that follows") {
  Order o;
  const Use use = o.work(kA);
  const SyncKind how =
      GENERATE(SyncKind::kStreamDone, SyncKind::kContextDone, SyncKind::kEventDone);
  if (how == SyncKind::kEventDone) o.sync(SyncKind::kEventRecord, kA, kEvent);
  CHECK_FALSE(o.order.done(use));
  o.sync(how, kA, kEvent);
  CHECK(o.order.done(use));
  CHECK(o.before(use, kB));
  const Use later = o.work(kA);
  CHECK_FALSE(o.before(later, kB));
}

TEST_CASE(
    "stream_order: the legacy stream and those that are not non-blocking wait for each other") {
  Order o;
  const Use blocking = o.work(kC), other = o.work(kA);
  CHECK(o.before(blocking, 0));
  CHECK_FALSE(o.before(other, 0));
  const Use legacy = o.work(0);
  CHECK(o.before(legacy, kC));
  CHECK_FALSE(o.before(legacy, kB));
  CHECK(o.before(legacy, 1));  // CU_STREAM_LEGACY
}

TEST_CASE("stream_order: each thread has a default stream of its own where it asks for one") {
  Order o;
  constexpr uint64_t kPerThread = 2;
  const Use use = o.work(kPerThread, 1);
  CHECK(o.order.ordered(use, o.work(kPerThread, 1).stream));
  CHECK_FALSE(o.order.ordered(use, o.work(kPerThread, 2).stream));
}

TEST_CASE("stream_order: a stream or event that was not seen to be made accuses nobody") {
  Order o;
  const Use use = o.work(kA);
  CHECK(o.before(use, 0x999));
  CHECK(o.before(o.work(0x999), kA));
  o.sync(SyncKind::kStreamWait, kB, 0x777);
  CHECK(o.before(use, kB));
}

TEST_CASE("stream_order: what orders work without an event accuses nobody") {
  Order o;
  const Use use = o.work(kA);
  SECTION("a stream that waits for a value in memory comes behind all there is") {
    o.sync(SyncKind::kStreamWait, kB);
    CHECK(o.before(use, kB));
    CHECK_FALSE(o.before(use, kC));
  }
  SECTION("a function of the host may have told of all in front of it, and of no more") {
    o.sync(SyncKind::kEventDone, kA);
    CHECK(o.before(use, kB));
    CHECK_FALSE(o.before(o.work(kA), kC));
  }
}

TEST_CASE("stream_order: an event of another process may stand for anything") {
  Order o;
  constexpr uint32_t kInterprocess = 4;
  o.sync(SyncKind::kEventCreate, 0, 0xF, kInterprocess);
  const Use use = o.work(kA);
  o.sync(SyncKind::kEventDone, 0, 0xF);
  CHECK(o.order.done(use));
}

TEST_CASE("stream_order: a handle that comes again is another stream") {
  Order o;
  const Use use = o.work(kA);
  o.sync(SyncKind::kStreamDestroy, kA);
  o.sync(SyncKind::kStreamCreate, kA, 0, kNonBlocking);
  CHECK_FALSE(o.before(use, kA));
}

TEST_CASE("stream_order: more streams than can be followed begin a new epoch") {
  Order o;
  const uint64_t epoch = o.order.epoch();
  for (uint64_t i = 0; i < 2000; ++i) {
    o.sync(SyncKind::kStreamCreate, 0x1000 + i);
    o.sync(SyncKind::kStreamDestroy, 0x1000 + i);
  }
  CHECK(o.order.epoch() > epoch);
}
