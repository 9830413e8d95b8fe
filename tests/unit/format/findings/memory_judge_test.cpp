#include "format/findings/memory/memory_judge.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/format/findings/judge_events.h"

using namespace convtrace;
using namespace convtrace::test;
using format::FindingKind;
using format::MemorySource;
using format::SampleOutcome;
using format::SyncKind;

namespace {

constexpr uint64_t kA = 0x100, kB = 0x200, kEvent = 0xE;
constexpr uint64_t kSegment = 0x700000000000, kBytes = 0x1000;

/// A framework's segment, and two streams that nothing orders.
struct Program : JudgedProgram {
  uint64_t segment = driver_alloc(kSegment, 0x200000);
  Program() {
    sync(SyncKind::kStreamCreate, kA, 0, 1);
    sync(SyncKind::kStreamCreate, kB, 0, 1);
    sync(SyncKind::kEventCreate, 0, kEvent);
  }
  [[nodiscard]] size_t count(FindingKind kind) const {
    return static_cast<size_t>(std::ranges::count(findings, kind, &judge::MemoryFinding::kind));
  }
  [[nodiscard]] size_t dangling() const { return count(FindingKind::kUseAfterFree); }
  [[nodiscard]] size_t reused() const { return count(FindingKind::kCrossStreamReuse); }
};

}  // namespace

TEST_CASE("memory_judge: a pointer into a block that was freed, in memory that lives on") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.launch({Program::pointer(kSegment, block)});
  CHECK(p.findings.empty());
  p.free(block);
  p.step = 4;
  // Nobody owns the address but the driver's segment: that is what the launch finds.
  p.launch({Program::pointer(kSegment + 0x200, p.segment, 2)}, kA, 7);
  REQUIRE(p.dangling() == 1);
  const judge::MemoryFinding& found = p.findings[0];
  CHECK(found.generation == block);
  CHECK(found.offset == 0x200);
  CHECK(found.bytes == kBytes);
  CHECK(found.param == 2);
  CHECK(found.kernel == format::KernelId{7});
  CHECK(found.freed_in_step == 3);
  CHECK(found.header.step == 4);
  CHECK(found.block);
}

TEST_CASE("memory_judge: what an autotuner tries out is no use of memory") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.free(block);
  p.phase = format::Phase::kTuning;
  p.launch({Program::pointer(kSegment, block)});
  CHECK(p.findings.empty());
  p.phase = format::Phase::kForward;
  p.launch({Program::pointer(kSegment, block)});
  CHECK(p.dangling() == 1);
}

TEST_CASE("memory_judge: the stack in front of a launch is its own, and its graph's kernels'") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.sync(SyncKind::kCaptureBegin, kB);
  p.sync(SyncKind::kCaptureEnd, kB);
  p.free(block);
  p.stack(7);
  p.launch({}, kA);
  p.launch({Program::pointer(kSegment, p.segment)}, kA, 1, SampleOutcome::kInGraph);
  p.launch({Program::pointer(kSegment, p.segment)}, kA, 2);  // seen by CUPTI alone
  ++p.thread;
  p.launch({Program::pointer(kSegment, p.segment)}, kA, 3);
  --p.thread;
  p.stack(8);
  p.launch({Program::pointer(kSegment, p.segment)}, kA, 4);
  REQUIRE(p.dangling() == 4);
  std::vector<uint32_t> stacks;
  for (const judge::MemoryFinding& finding : p.findings)
    stacks.push_back(judge::record_of(finding).launch_stack.value);
  CHECK(stacks == std::vector<uint32_t>{7, 0, 0, 8});
}

TEST_CASE("memory_judge: of memory given out again, where it came from and who freed it before") {
  Program p;
  format::Alloc alloc;
  alloc.address = kSegment;
  alloc.bytes = kBytes;
  alloc.generation = 50;
  alloc.source = MemorySource::kFramework;
  alloc.device = kGpu;
  alloc.stack = format::StackId{3};
  p.see(alloc);
  p.launch({Program::pointer(kSegment, 50)}, kB);
  format::Free free;
  free.generation = 50;
  free.stack = format::StackId{4};
  p.see(free);
  alloc.generation = 51;
  alloc.stack = format::StackId{5};
  p.see(alloc);
  p.stack(6);
  p.launch({Program::pointer(kSegment, 51)}, kA);
  REQUIRE(p.reused() == 1);
  const format::Finding record = judge::record_of(p.findings[0]);
  CHECK(record.alloc_stack.value == 5);
  CHECK(record.free_stack.value == 4);
  CHECK(record.launch_stack.value == 6);
}

TEST_CASE("memory_judge: a pointer into driver memory that was freed") {
  const MemorySource source =
      GENERATE(MemorySource::kDriver, MemorySource::kStreamOrdered, MemorySource::kVirtual);
  Program p;
  const uint64_t memory = p.alloc(0x1000, kBytes, source);
  p.free(memory);
  p.launch({Program::pointer(0x1000, memory)});
  CHECK(p.dangling() == 1);
  SECTION("until somebody owns the address again") {
    const uint64_t next = p.alloc(0x1000, kBytes, source);
    p.launch({Program::pointer(0x1000, next)});
    CHECK(p.dangling() == 1);
  }
}

TEST_CASE("memory_judge: memory of the host and of others may outlive what we saw of it") {
  const MemorySource source = GENERATE(MemorySource::kHost, MemorySource::kForeign);
  Program p;
  const uint64_t memory = p.alloc(0x1000, kBytes, source);
  p.free(memory);
  p.launch({Program::pointer(0x1000, memory)});
  CHECK(p.findings.empty());
}

TEST_CASE("memory_judge: stale words inside structures are counted, not reported") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.free(block);
  p.launch({Program::word(kSegment, p.segment)});
  CHECK(p.findings.empty());
  CHECK(p.judge.stale_words() == 1);
}

TEST_CASE("memory_judge: an end pointer is none into the memory behind") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.free(p.alloc(kSegment + kBytes, kBytes));
  p.launch({Program::pointer(kSegment, block), Program::pointer(kSegment + kBytes, p.segment, 1)});
  CHECK(p.findings.empty());
  SECTION("unless the kernel has no pointer to what it would be the end of") {
    p.launch({Program::pointer(kSegment + kBytes, p.segment)});
    CHECK(p.dangling() == 1);
  }
}

TEST_CASE("memory_judge: what a graph's pool calls freed is used by replays") {
  Program p;
  const uint64_t before = p.alloc(kSegment, kBytes);
  const uint64_t pool = p.driver_alloc(0x600000000000, 0x200000);
  p.sync(SyncKind::kCaptureBegin, kA);
  p.free(p.alloc(0x600000000000, kBytes));
  p.launch({Program::pointer(0x600000000000, pool)}, kA, 1, SampleOutcome::kCaptured);
  p.sync(SyncKind::kCaptureEnd, kA);
  p.launch({Program::pointer(0x600000000000, pool)}, kA, 2, SampleOutcome::kInGraph);
  // A framework may give out blocks of the pool between replays, too.
  p.free(p.alloc(0x600000000000 + kBytes, kBytes));
  p.launch({Program::pointer(0x600000000000 + kBytes, pool)}, kA, 3, SampleOutcome::kInGraph);
  CHECK(p.findings.empty());
  SECTION("but what was there before the capture and is freed is a bug") {
    p.free(before);
    p.launch({Program::pointer(kSegment, p.segment)}, kA, 4, SampleOutcome::kInGraph);
    REQUIRE(p.dangling() == 1);
    CHECK(p.findings[0].in_graph);
  }
  SECTION("and so is the pool itself") {
    p.free(pool);
    p.launch({Program::pointer(0x600000000000, pool)}, kA, 4, SampleOutcome::kInGraph);
    CHECK(p.dangling() == 1);
  }
}

TEST_CASE("memory_judge: a graph that was captured unseen is not judged") {
  Program p;
  p.free(p.alloc(kSegment, kBytes));
  p.launch({Program::pointer(kSegment, p.segment)}, kA, 1, SampleOutcome::kInGraph);
  CHECK(p.findings.empty());
}

TEST_CASE("memory_judge: where graphs allocate, nobody can tell what the driver owns") {
  Program p;
  const uint64_t memory = p.driver_alloc(0x1000, kBytes);
  p.free(memory);
  p.lose(format::LossReason::kGraphMemory);
  p.launch({Program::pointer(0x1000, memory)});
  CHECK(p.findings.empty());
}

TEST_CASE("memory_judge: where CPU tensors are not reported any more, what they were is no life") {
  Program p;
  p.free(p.alloc(kSegment, kBytes));
  format::Diagnostic said;
  said.site = format::kCpuMemorySite;
  p.see(said);
  p.launch({Program::pointer(kSegment, p.segment)});
  CHECK(p.findings.empty());
}

TEST_CASE("memory_judge: after events were lost nothing from before is judged") {
  Program p;
  const uint64_t memory = p.driver_alloc(0x1000, kBytes);
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.launch({Program::pointer(kSegment, block)}, kA);
  p.free(block);
  p.free(memory);
  p.lose(format::LossReason::kQueueFull);
  p.launch({Program::pointer(0x1000, memory)});
  const uint64_t next = p.alloc(kSegment, kBytes);
  p.launch({Program::pointer(kSegment, next)}, kB);
  CHECK(p.findings.empty());
}

TEST_CASE("memory_judge: a bug in a loop is said four times, then at each doubling") {
  Program p;
  const uint64_t memory = p.driver_alloc(0x1000, kBytes);
  p.free(memory);
  for (int i = 0; i < 100; ++i) p.launch({Program::pointer(0x1000, memory)});
  CHECK(p.findings.size() == 8);
  CHECK(p.findings.back().occurrence == 64);
}

TEST_CASE("memory_judge: memory given to another stream before the first is done with it") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.launch({Program::pointer(kSegment, block)}, kA);
  p.free(block);
  const uint64_t next = p.alloc(kSegment, kBytes / 2);
  SECTION("nothing orders them") {
    p.launch({Program::pointer(kSegment, next)}, kB);
    REQUIRE(p.reused() == 1);
    CHECK(p.findings[0].generation == next);
    CHECK(p.findings[0].stream == kB);
    CHECK(p.findings[0].other_stream == kA);
    p.launch({Program::pointer(kSegment, next)}, kB);
    CHECK(p.reused() == 1);
  }
  SECTION("a copy is a use") {
    p.copy(kSegment, 0x10, kB);
    CHECK(p.reused() == 1);
  }
  SECTION("the same stream") {
    p.launch({Program::pointer(kSegment, next)}, kA);
    CHECK(p.findings.empty());
  }
  SECTION("an event") {
    p.sync(SyncKind::kEventRecord, kA, kEvent);
    p.sync(SyncKind::kStreamWait, kB, kEvent);
    p.launch({Program::pointer(kSegment, next)}, kB);
    CHECK(p.findings.empty());
  }
  SECTION("CUPTI ended: edges may be missing") {
    format::Diagnostic ended;
    ended.site = "cupti";
    p.see(ended);
    p.launch({Program::pointer(kSegment, next)}, kB);
    CHECK(p.findings.empty());
  }
  SECTION("a kernel that only has the address among other words") {
    p.launch({Program::word(kSegment, next)}, kB);
    CHECK(p.findings.empty());
  }
  SECTION("what runs later, when a graph is launched") {
    p.launch({Program::pointer(kSegment, next)}, kB, 1, SampleOutcome::kCaptured);
    CHECK(p.findings.empty());
  }
}

TEST_CASE(
    "memory_judge: record_stream is an edge: the allocator asks whether that stream is done") {
  Program p;
  const uint64_t block = p.alloc(kSegment, kBytes);
  p.launch({Program::pointer(kSegment, block)}, kA);
  p.launch({Program::pointer(kSegment, block)}, kB);
  p.free(block);
  const bool correct = GENERATE(true, false);
  if (correct) {
    p.sync(SyncKind::kEventRecord, kB, kEvent);
    p.sync(SyncKind::kEventDone, 0, kEvent);
  }
  const uint64_t next = p.alloc(kSegment, kBytes);
  p.launch({Program::pointer(kSegment, next)}, kA);
  CHECK(p.reused() == (correct ? 0 : 1));
}

TEST_CASE("memory_judge: cuMemFree waits for the device") {
  Program p;
  const uint64_t memory = p.driver_alloc(0x1000, kBytes);
  p.launch({Program::pointer(0x1000, memory)}, kA);
  p.free(memory);
  const uint64_t next = p.driver_alloc(0x1000, kBytes);
  p.launch({Program::pointer(0x1000, next)}, kB);
  CHECK(p.findings.empty());
}

TEST_CASE("memory_judge: a pool orders its memory behind the free, not behind other streams") {
  Program p;
  const uint64_t memory = p.alloc(0x1000, kBytes, MemorySource::kStreamOrdered, kA);
  const uint64_t stream = GENERATE(kA, kB);
  p.launch({Program::pointer(0x1000, memory)}, stream);
  p.free(memory, kA);
  const uint64_t next = p.alloc(0x1000, kBytes, MemorySource::kStreamOrdered, kA);
  p.launch({Program::pointer(0x1000, next)}, kA);
  CHECK(p.reused() == (stream == kA ? 0 : 1));
}

TEST_CASE("memory_judge: a million blocks that come and go on one stream are nothing") {
  Program p;
  for (int i = 0; i < 1'000'000; ++i) {
    const uint64_t address = kSegment + static_cast<uint64_t>(i) * 7 % 400 * 512;
    const uint64_t block = p.alloc(address, 512 * (1 + static_cast<uint64_t>(i) % 3));
    p.launch({Program::pointer(address, block)}, kA);
    p.free(block);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("finding_text: the sentence says what, where, since when, and what to do") {
  format::Definitions definitions;
  const format::StringId name = definitions.intern("_Z3addPf"), family = definitions.intern("add");
  judge::MemoryFinding finding;
  finding.kernel = definitions.intern_kernel({name, family});
  finding.place.scope = definitions.intern("h.0.mlp");
  finding.place.call = 2;
  finding.header.step = 7;
  finding.param = 1;
  finding.address = 0x7f0000000200;
  finding.offset = 512;
  finding.bytes = 4096;
  finding.generation = 33;
  finding.freed_in_step = 6;
  finding.block = true;
  CHECK(judge::slot_text(finding) == "arg:1");
  CHECK(judge::describe(finding, definitions) ==
        "Parameter 1 of kernel add, launched in module h.0.mlp (call 2, forward) in step 7 on "
        "stream 0x0, points to 0x7f0000000200, 512 bytes into a block of 4096 bytes (generation "
        "33) that was freed in step 6 and that nobody owns now. What the kernel reads there means "
        "nothing any more, and what it writes damages whatever is given the memory next. Keep the "
        "tensor alive until the launch is made; an op that stores an address has to keep the "
        "tensor too.");
  SECTION("of a graph, capture again") {
    finding.in_graph = true;
    CHECK_THAT(judge::describe(finding, definitions), Catch::Contains("capture again"));
  }
  SECTION("of two streams, record_stream") {
    finding.kind = FindingKind::kCrossStreamReuse;
    finding.other_stream = 0x55;
    CHECK_THAT(judge::describe(finding, definitions),
               Catch::Contains("last used on stream 0x55") && Catch::Contains("record_stream"));
  }
}
