#include "format/findings/memory/memory_judge.h"
#include "tests/support/catch.h"
#include "tests/unit/format/findings/judge_events.h"

using namespace convtrace;
using namespace convtrace::test;

namespace {

constexpr uint64_t kInput = 1, kOutput = 2, kOther = 3;

struct Values : JudgedProgram {
  /// A record of a tensor that is all of its storage, at one address.
  void record(uint64_t storage, uint64_t generation, uint64_t hash, uint32_t version = 0,
              uint64_t bytes = 4096) {
    format::TensorStats event;
    event.slot = format::StringId{static_cast<uint32_t>(storage)};
    event.value = {.storage = storage, .offset = 0, .generation = generation, .version = version};
    event.address = 0x7000;
    event.bytes = bytes;
    event.stats.hash = hash;
    see(event);
  }
  [[nodiscard]] bool stale() const {
    return !findings.empty() && findings[0].kind == format::FindingKind::kStaleRead;
  }
};

}  // namespace

TEST_CASE("stale_values: a borrower whose memory was given away and rewritten") {
  Values p;
  p.record(kInput, 10, 0xA);
  p.record(kOutput, 10, 0xB);
  p.record(kOther, 11, 0xC);  // now it is somebody else's
  p.stack(9, false);
  p.record(kOutput, 11, 0xC);
  REQUIRE(p.stale());
  CHECK(p.findings[0].launch_stack.value == 9);
  CHECK(p.findings[0].made.hash == 0xB);
  CHECK(p.findings[0].hash == 0xC);
  CHECK(p.findings[0].made.id.generation == 10);
  CHECK(p.findings[0].generation == 11);
  p.record(kOutput, 11, 0xC);  // it was said
  CHECK(p.findings.size() == 1);
}

TEST_CASE("stale_values: a borrower whose memory was freed, is nobody's, and was filled") {
  Values p;
  p.record(kInput, 10, 0xA);
  p.record(kOutput, 10, 0xB);
  p.record(kOutput, 0, 0xFF);
  REQUIRE(p.stale());
  CHECK(p.findings[0].made.id.generation == 10);
  CHECK(p.findings[0].generation == 0);
  const std::string text = judge::describe(p.findings[0], format::Definitions());
  CHECK(text.find("(generation 10), and nobody owns it now (hash 0xb, now 0xff)") !=
        std::string::npos);
}

TEST_CASE("stale_values: memory of others, whose frees are not reported, has no life to end") {
  Values p;
  p.record(kInput, 0, 0xA);
  p.record(kOutput, 0, 0xB);
  p.record(kOutput, 0, 0xC);
  CHECK(p.findings.empty());
}

TEST_CASE("stale_values: what is no stale read") {
  Values p;
  p.record(kInput, 10, 0xA);
  p.record(kOutput, 10, 0xB);
  SECTION("given away, but not rewritten yet") { p.record(kOutput, 11, 0xB); }
  SECTION("freed, and as it was") { p.record(kOutput, 0, 0xB); }
  SECTION("written in place by who owns it") { p.record(kOutput, 11, 0xC, 1); }
  SECTION("changed without a new life: another matter") { p.record(kOutput, 10, 0xC); }
  SECTION("another part of the storage") { p.record(kOutput, 11, 0xC, 0, 2048); }
  CHECK(p.findings.empty());
}

TEST_CASE("stale_values: an owner that gave its memory away and got it back, as FSDP does") {
  Values p;
  p.record(kInput, 10, 0xA);
  p.record(kInput, 11, 0xB);
  CHECK(p.findings.empty());
}

TEST_CASE("stale_values: the sentence names who reads, who made it, and what happened") {
  format::Definitions definitions;
  judge::MemoryFinding finding;
  finding.kind = format::FindingKind::kStaleRead;
  finding.taker = judge::MemoryFinding::Taker::kTensor;
  finding.slot = definitions.intern("input:0");
  finding.place.scope = definitions.intern("h.1");
  finding.header.step = 4;
  finding.address = 0x7000;
  finding.bytes = 4096;
  finding.generation = 11;
  finding.hash = 0xC;
  finding.made.slot = definitions.intern("output:0");
  finding.made.op = definitions.intern("demo::gelu");
  finding.made.place.scope = definitions.intern("h.0");
  finding.made.step = 4;
  finding.made.id.generation = 10;
  finding.made.hash = 0xB;
  CHECK(judge::describe(finding, definitions) ==
        "input:0 of module h.1 (call 0, forward) in step 4 is not what output:0 of op demo::gelu "
        "in module h.0 (call 0, forward) made in step 4: the memory (0x7000, 4096 bytes) was freed "
        "in between, given out again (generation 10, now 11) and rewritten (hash 0xb, now 0xc). "
        "All that is computed from it is wrong. Whoever made it has to return a tensor that owns "
        "its memory, or keeps the owner alive.");
}
