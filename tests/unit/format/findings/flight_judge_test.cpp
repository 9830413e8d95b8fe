#include "format/findings/collectives/flight_judge.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;
using format::FindingKind;
using format::OpMoment;
using format::Phase;

namespace {

constexpr uint64_t kBuffer = 0x7000, kBytes = 256;

/// Memory of a tensor in a storage that begins at kBuffer.
struct Part {
  uint64_t offset = 0, bytes = kBytes;
  uint32_t version = 0;
  uint64_t storage = 1, generation = 5;
};

/// A program that calls collectives.
struct Program {
  format::Definitions definitions;
  FlightJudge judge{definitions};
  FlightJudge::Findings findings;
  uint32_t thread = 11;

  void see(format::Event event) {
    format::header_of(event).thread = thread;
    format::header_of(event).step = 3;
    judge.see(event, findings);
  }
  format::Op op(OpMoment moment, const char* name, const char* slot, Part part, bool written) {
    format::Op event;
    event.moment = moment;
    event.place.scope = definitions.intern("h.0");
    event.op = definitions.intern(name);
    event.slot = definitions.intern(slot);
    event.address = kBuffer + part.offset;
    event.bytes = part.bytes;
    event.storage_bytes = kBytes;
    event.value = {.storage = part.storage,
                   .offset = part.offset,
                   .generation = part.generation,
                   .version = part.version};
    event.written = written;
    return event;
  }
  void receives(Part part = {}) { see(op(OpMoment::kInFlight, "recv", "received:0", part, true)); }
  void sends(Part part = {}) { see(op(OpMoment::kInFlight, "send", "sent:0", part, false)); }
  void waits(bool written = false, Part part = {}) {
    see(op(OpMoment::kAwaited, "recv", "received:0", part, written));
  }
  void record(const char* scope, const char* slot, Part part = {}, Phase phase = Phase::kForward) {
    format::TensorStats event;
    event.place = {definitions.intern(scope), 0, phase};
    event.slot = definitions.intern(slot);
    event.address = kBuffer + part.offset;
    event.bytes = part.bytes;
    event.value = {.storage = part.storage,
                   .offset = part.offset,
                   .generation = part.generation,
                   .version = part.version};
    see(event);
  }
  void scope(const char* name, bool enter, Phase phase = Phase::kForward) {
    format::Scope event;
    event.place = {definitions.intern(name), 0, phase};
    event.enter = enter;
    see(event);
  }
  /// A module's call with an input.
  void call(const char* name, Part part = {}) {
    scope(name, true);
    record(name, "input:0", part);
    scope(name, false);
  }
};

}  // namespace

TEST_CASE("a module that returns without a wait has used what it took", "[flights]") {
  Program p;
  p.receives();
  p.scope("h.1", true);
  p.record("h.1", "input:0");
  CHECK(p.findings.empty());
  p.scope("h.1", false);
  REQUIRE(p.findings.size() == 1);
  CHECK(p.findings[0].kind == FindingKind::kUsedBeforeWait);
  CHECK(p.definitions.text(p.findings[0].place.scope) == "h.1");
  p.call("h.2");
  CHECK(p.findings.size() == 1);  // a consequence
}

TEST_CASE("a module that waits, or hands on what it took, is innocent", "[flights]") {
  Program p;
  p.receives();
  SECTION("it waits") {
    p.scope("h.1", true);
    p.record("h.1", "input:0");
    p.waits();
    p.scope("h.1", false);
  }
  SECTION("it hands on") {
    p.scope("h.1", true);
    p.record("h.1", "input:0");
    p.record("h.1", "output:0");
    p.scope("h.1", false);
  }
  SECTION("somebody waited before") {
    p.waits();
    p.call("h.1");
  }
  SECTION("it took another part of the storage") { p.call("h.1", {.offset = 300}); }
  SECTION("it took the memory in another life") { p.call("h.1", {.storage = 2, .generation = 6}); }
  SECTION("events were lost") {
    format::Loss lost;
    lost.reason = format::LossReason::kQueueFull;
    p.see(lost);
    p.call("h.1");
  }
  CHECK(p.findings.empty());
}

TEST_CASE("what is sent may be read, and not written", "[flights]") {
  Program p;
  p.sends();
  p.call("h.1");
  CHECK(p.findings.empty());
  p.record("h.1", "output:0", {.version = 1});
  p.see(p.op(OpMoment::kAwaited, "send", "sent:0", {.version = 1}, true));
  REQUIRE(p.findings.size() == 1);
  CHECK(p.findings[0].written);
  CHECK(p.definitions.text(p.findings[0].slot) == "output:0");
}

TEST_CASE("a gradient is used by the optimizer that updates behind it", "[flights]") {
  Program p;
  p.receives();
  p.record("h.1", "grad:weight", {}, Phase::kBackward);
  CHECK(p.findings.empty());
  SECTION("without a wait") {
    p.record("h.1", "param:weight", {.storage = 9, .generation = 9}, Phase::kOptimizer);
    CHECK(p.findings.size() == 1);
  }
  SECTION("that waits") {
    p.waits();
    p.record("h.1", "param:weight", {.storage = 9, .generation = 9}, Phase::kOptimizer);
    CHECK(p.findings.empty());
  }
}

TEST_CASE("parameters that are all being written are used by their module", "[flights]") {
  Program p;
  p.receives({.bytes = 128});
  p.record("h.1", "param:weight", {.bytes = 128});
  p.record("h.1", "param:bias", {.offset = 128, .bytes = 128});
  p.call("h.1", {.storage = 9, .generation = 9});
  CHECK(p.findings.empty());  // it may not use the one
  p.receives({.offset = 128, .bytes = 128});
  p.call("h.1", {.storage = 9, .generation = 9});
  CHECK(p.findings.size() == 2);
}

TEST_CASE("receptions that are on their way at once have no common memory", "[flights]") {
  Program p;
  p.receives({.bytes = 128});
  p.receives({.offset = 128, .bytes = 128});
  p.sends({.storage = 2, .generation = 6});
  CHECK(p.findings.empty());
  p.receives({.offset = 100, .bytes = 64});
  REQUIRE(p.findings.size() == 1);
  CHECK(p.findings[0].kind == FindingKind::kReceiveOverlaps);
  CHECK(p.findings[0].bytes == 28);
  CHECK(describe(p.findings[0], p.definitions).find("28 bytes") != std::string::npos);
}

TEST_CASE("windows of one call that overlap", "[flights]") {
  Program p;
  const auto gathers = [&p](uint64_t call, const char* slot, Part part, uint64_t hash = 7) {
    format::TensorStats event;
    event.op = p.definitions.intern("all_gather");
    event.slot = p.definitions.intern(slot);
    event.address = kBuffer + part.offset;
    event.bytes = part.bytes;
    event.value = {.storage = part.storage, .generation = part.generation};
    event.collective = call;
    event.stats.hash = hash;
    p.see(event);
  };
  gathers(1, "sent:0", {.bytes = 100, .storage = 2}, 8);
  gathers(1, "received:0", {.bytes = 100});
  SECTION("side by side") { gathers(1, "received:1", {.offset = 100, .bytes = 100}); }
  SECTION("one tensor twice") {
    SECTION("that holds what was sent") { gathers(1, "received:1", {.bytes = 100}, 8); }
    SECTION("of calls that send nothing") {
      gathers(2, "received:0", {.bytes = 100});
      gathers(2, "received:1", {.bytes = 100});
    }
    SECTION("that holds another rank's part") {
      gathers(1, "received:1", {.bytes = 100});
      REQUIRE(p.findings.size() == 1);
      CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
      CHECK(p.findings[0].bytes == 100);
      return;
    }
  }
  SECTION("of two calls") { gathers(2, "received:1", {.offset = 96, .bytes = 100}); }
  SECTION("what is sent from there") { gathers(1, "sent:0", {.offset = 96, .bytes = 100}); }
  SECTION("another storage") { gathers(1, "received:1", {.offset = 96, .storage = 2}); }
  SECTION("as they should not") {
    gathers(1, "received:1", {.offset = 96, .bytes = 100});
    REQUIRE(p.findings.size() == 1);
    CHECK(p.findings[0].bytes == 4);
    CHECK(describe(p.findings[0], p.definitions).find("with received:0 of the same call") !=
          std::string::npos);
    return;
  }
  CHECK(p.findings.empty());
}

TEST_CASE("a part of a gradient was received over", "[flights]") {
  Program p;
  uint64_t calls = 0;
  const auto exchanges = [&p, &calls](const char* op, const char* slot, Part part) {
    format::TensorStats event;
    event.op = p.definitions.intern(op);
    event.slot = p.definitions.intern(slot);
    event.address = kBuffer + part.offset;
    event.bytes = part.bytes;
    event.value.generation = part.generation;
    event.collective = ++calls;
    p.see(event);
  };
  const auto steps = [&p] { p.record("h.1", "grad:weight", {}, Phase::kBackward); };
  SECTION("by accident") {
    exchanges("recv", "received:0", {.offset = 200, .bytes = 500});
    steps();
    REQUIRE(p.findings.size() == 1);
    CHECK(p.findings[0].bytes == kBytes - 200);
    CHECK(p.findings[0].whole == kBytes);
  }
  SECTION("behind a reduction of all of it") {
    exchanges("all_reduce", "sent:0", {.bytes = 1000});
    exchanges("all_reduce", "received:0", {.bytes = 1000});
    exchanges("recv", "received:0", {.offset = 200, .bytes = 500});
    steps();
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(describe(p.findings[0], p.definitions).find("Ranks had reduced that gradient") !=
          std::string::npos);
  }
  SECTION("behind a reduction, by a message inside of it") {
    exchanges("all_reduce", "received:0", {.bytes = 1000});
    exchanges("recv", "received:0", {.offset = 100, .bytes = 100});
    steps();
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kInfo);
  }
  SECTION("behind a reduction, by a broadcast that reaches beyond it") {
    exchanges("all_reduce", "received:0", {.bytes = 1000});
    exchanges("broadcast", "received:0", {.offset = 200, .bytes = 500});
    steps();
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
  }
  SECTION("in memory that was there before the trace") {
    exchanges("recv", "received:0", {.offset = 200, .bytes = 500, .generation = 0});
    p.record("h.1", "grad:weight", {.generation = 0}, Phase::kBackward);
    CHECK(p.findings.size() == 1);
  }
  SECTION("and all of it reduced behind that") {
    exchanges("recv", "received:0", {.offset = 200, .bytes = 500});
    exchanges("all_reduce", "sent:0", {.bytes = 1000});
    steps();
    CHECK(p.findings.size() == 1);
  }
  SECTION("or not") {
    SECTION("a reduction came first, and what one rank has made of a part is dealt out") {
      exchanges("all_reduce", "received:0", {.bytes = 1000});
      exchanges("broadcast", "received:0", {.offset = 100, .bytes = 100});
    }
    SECTION("a reduction came first, and shards of a flat buffer are dealt out") {
      exchanges("all_reduce", "received:0", {.bytes = 1000});
      exchanges("broadcast", "received:0", {.bytes = 200});
      exchanges("broadcast", "received:0", {.offset = 200, .bytes = 500});
    }
    SECTION("a reduction came first, and parts are sent in turn") {
      exchanges("all_reduce", "received:0", {.bytes = 1000});
      exchanges("send", "sent:0", {.bytes = 200});
      exchanges("recv", "received:0", {.offset = 200, .bytes = 500});
    }
    SECTION("a reduction of a part came first") {
      exchanges("all_reduce", "received:0", {.bytes = 200});
      exchanges("recv", "received:0", {.offset = 200, .bytes = 500});
    }
    SECTION("a reduction came first, and all of it was received") {
      exchanges("all_reduce", "received:0", {.bytes = 1000});
      exchanges("recv", "received:0", {.bytes = 500});
    }
    SECTION("as a whole") {
      exchanges("recv", "received:0", {.bytes = 100});
      exchanges("recv", "received:0", {.offset = 100, .bytes = 500});
    }
    SECTION("the rest was sent") {
      exchanges("send", "sent:0", {.bytes = 100});
      exchanges("recv", "received:0", {.offset = 100, .bytes = 500});
    }
    SECTION("it was reduced") { exchanges("all_reduce", "received:0", {.bytes = 100}); }
    SECTION("before the backward pass") {
      exchanges("recv", "received:0", {.bytes = 100});
      p.scope("", true, Phase::kBackward);
    }
    SECTION("in another life of the memory") {
      exchanges("recv", "received:0", {.bytes = 100, .generation = 4});
    }
    steps();
    CHECK(p.findings.empty());
  }
}

/// Statistics of a tensor of floats.
format::Stats stats_of(const std::vector<float>& values) {
  format::Stats stats;
  stats.count = stats.finite = values.size();
  double sum = 0, l1 = 0, squares = 0, amax = 0;
  for (const float value : values) {
    sum += value;
    l1 += std::abs(value);
    squares += double{value} * value;
    amax = std::max(amax, std::abs(double{value}));
  }
  stats.sum = format::WideScalar::f64(sum);
  stats.l1 = format::WideScalar::f64(l1);
  stats.amax = format::Scalar::f64(amax);
  stats.l2 = std::sqrt(squares);
  return stats;
}

/// A training that sums up its gradients in one flat tensor, over two ranks.
struct FlatProgram : Program {
  std::vector<float> mine = {1, -2, 3, 0.5, 4, -1, 2.5, 7, -6, 1.5};
  std::vector<float> others = {2, 1, -1, 5, -3, 0.25, 1, 2, 8, -4};
  uint32_t ranks = 2, step = 0;
  uint64_t calls = 0;
  const char* reduction = "sum";
  format::DType dtype = format::DType::kF32;

  void tell(format::Event event) {
    format::header_of(event).step = step;
    judge.see(event, findings);
  }
  void values(const char* scope, const char* op, const char* slot, Phase phase,
              const std::vector<float>& numbers, bool of_call) {
    format::TensorStats event;
    event.place = {definitions.intern(scope), 0, phase};
    if (*op != '\0') event.op = definitions.intern(op);
    event.slot = definitions.intern(slot);
    event.address = of_call ? kBuffer : 0x90000;
    event.bytes = numbers.size() * sizeof(float);
    event.value = {.storage = of_call ? 0U : 9U, .generation = of_call ? 5U : 6U};
    event.dtype = dtype;
    event.capture = format::Capture::kStats;
    event.stats = stats_of(numbers);
    event.collective = of_call ? calls : 0;
    tell(event);
  }
  [[nodiscard]] std::vector<float> sum() const {
    std::vector<float> all = mine;
    for (size_t i = 0; i < all.size(); ++i) all[i] += others[i];
    return all;
  }
  /// A step whose gradients are `taken`, times a factor.
  void trains(const std::vector<float>& taken, float factor, bool waits = true) {
    format::Collective call;
    call.op = definitions.intern("all_reduce");
    call.reduction = definitions.intern(reduction);
    call.group_size = ranks;
    call.id = ++calls;
    tell(call);
    values("", "all_reduce", "sent:0", Phase::kCommunication, mine, true);
    const Part whole{.bytes = mine.size() * sizeof(float)};
    tell(op(OpMoment::kInFlight, "all_reduce", "received:0", whole, true));
    if (waits) {
      tell(op(OpMoment::kAwaited, "all_reduce", "received:0", whole, false));
      values("", "all_reduce", "received:0", Phase::kCommunication, sum(), true);
    }
    std::vector<float> one, two;
    for (size_t i = 0; i < taken.size(); ++i) (i < 4 ? one : two).push_back(taken[i] * factor);
    values("h.0", "", "grad:bias", Phase::kBackward, {3, 4}, false);
    values("h.1", "", "grad:weight", Phase::kBackward, one, false);
    values("h.2", "", "grad:weight", Phase::kBackward, two, false);
    values("h.1", "", "param:weight", Phase::kOptimizer, {1, 2, 3, 4}, false);
    ++step;
  }
};

TEST_CASE("gradients that were copied from a flat tensor before its sum had come", "[flights]") {
  FlatProgram p;
  SECTION("in two steps") {
    p.trains(p.mine, 0.5F);
    CHECK(p.findings.empty());  // a scheme that adds the others' parts later begins so
    p.trains(p.mine, 0.5F);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kInfo);
    CHECK(p.definitions.text(p.findings[0].place.scope) == "h.1");
    CHECK(p.findings[0].copied == 2);
    const std::string text = describe(p.findings[0], p.definitions);
    CHECK(text.find("what this rank had sent there, divided by 2") != std::string::npos);
    return;
  }
  const auto twice = [&p](const std::vector<float>& taken, float factor, bool waits = true) {
    for (int i = 0; i < 3; ++i) p.trains(taken, factor, waits);
  };
  SECTION("as they should be") { twice(p.sum(), 0.5F); }
  SECTION("summed up to look at them") { twice(p.mine, 1); }
  SECTION("clipped") { twice(p.mine, 0.37F); }
  SECTION("the others' parts come later") { twice(p.mine, 0.5F, false); }
  SECTION("ranks with equal data") {
    p.others = p.mine;
    twice(p.mine, 0.5F);
  }
  SECTION("ranks whose gradients are zeros") {
    p.mine.assign(10, 0);
    twice(p.mine, 0.5F);
  }
  SECTION("one rank") {
    p.ranks = 1;
    twice(p.mine, 1);
  }
  SECTION("a largest value") {
    p.reduction = "max";
    twice(p.mine, 0.5F);
  }
  SECTION("of 16 bits") {
    p.dtype = format::DType::kBF16;
    twice(p.mine, 0.5F);
  }
  SECTION("another part of it") {
    std::vector<float> other = p.mine;
    other[3] += 0.01F;
    twice(other, 0.5F);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("a tagged op has used what was on its way when it began", "[flights]") {
  Program p;
  const auto call_op = [&p](uint32_t given_version) {
    p.see(p.op(OpMoment::kInput, "demo::f", "input:0", {}, false));
    p.see(p.op(OpMoment::kOutput, "demo::f", "output:0",
               {.version = given_version, .storage = given_version == 0 ? 1u : 2u}, false));
    p.see(p.op(OpMoment::kEnd, "demo::f", "", {}, false));
  };
  SECTION("before") {
    p.receives();
    p.see(p.op(OpMoment::kBegin, "demo::f", "", {}, false));
    call_op(1);
    REQUIRE(p.findings.size() == 1);
    CHECK(p.definitions.text(p.findings[0].user) == "demo::f");
  }
  SECTION("handed on") {
    p.receives();
    p.see(p.op(OpMoment::kBegin, "demo::f", "", {}, false));
    call_op(0);
    CHECK(p.findings.empty());
  }
  SECTION("called by the op itself") {
    p.sends({.storage = 7, .generation = 7});  // so that ops are followed
    p.see(p.op(OpMoment::kBegin, "demo::f", "", {}, false));
    p.receives();
    call_op(1);
    CHECK(p.findings.empty());
  }
}
