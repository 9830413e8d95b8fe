#include "format/findings/ops/alias_judge.h"

#include "format/findings/ops/shared_memory.h"
#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;
using format::FindingKind;
using format::StackId;
using format::StringId;

namespace {

constexpr uint32_t kThread = 11;
constexpr uint64_t kBytes = 98304;
const StringId kInput0{1}, kInput1{2}, kOutput0{3}, kOutput1{4};

/// A tensor that covers its whole storage; its block's generation is the storage's number.
format::Op tensor(StringId slot, uint64_t storage, uint64_t base, uint64_t bytes = kBytes) {
  const bool is_output = slot == kOutput0 || slot == kOutput1;
  format::Op tensor;
  tensor.moment = is_output ? format::OpMoment::kOutput : format::OpMoment::kInput;
  tensor.slot = slot;
  tensor.address = base;
  tensor.bytes = tensor.storage_bytes = bytes;
  tensor.value = {.storage = storage, .offset = 0, .generation = storage, .version = 0};
  tensor.frees_reported = true;
  if (!is_output) tensor.stack = StackId{8};
  return tensor;
}

/// A judge and the events that the observer and the allocator make.
struct Program {
  AliasJudge judge;
  AliasJudge::Findings findings;
  bool schema_known = false;
  bool declared = false;

  void see(format::Event event, uint32_t thread = kThread) {
    format::header_of(event).thread = thread;
    format::header_of(event).step = 3;
    judge.see(event, findings);
  }
  /// @return whether it is worth a stack.
  bool op(const std::vector<format::Op>& tensors, uint32_t thread = kThread) {
    format::Op event;
    event.op = StringId{9};
    see(event, thread);
    for (const format::Op& tensor : tensors) see(tensor, thread);
    event.moment = format::OpMoment::kEnd;
    event.has_schema = schema_known;
    event.declares_alias = declared;
    see(event, thread);
    bool shares = false;
    each_shared(event, tensors, [&shares](const auto&, const auto&, Overlap) { shares = true; });
    for (const format::Op& tensor : tensors) shares = shares || is_unowned(tensor, tensors);
    return shares;
  }
  void stack(uint32_t id) {
    format::Op event;
    event.moment = format::OpMoment::kStack;
    event.stack = StackId{id};
    see(event);
  }
  /// The weak reference's callback comes first, then the allocator's report.
  void dies(uint64_t storage, uint32_t thread = kThread) {
    format::Op event;
    event.moment = format::OpMoment::kStorageDeath;
    event.value.storage = storage;
    event.stack = StackId{7};
    see(event, thread);
  }
  void freed(uint64_t generation) {
    format::Free event;
    event.generation = generation;
    event.source = format::MemorySource::kFramework;
    see(event);
  }
  void dies_and_frees(uint64_t storage) {
    dies(storage);
    freed(storage);
  }
  void allocates(uint32_t thread = kThread) { see(format::Alloc{}, thread); }
  void gives_out(uint64_t address, uint64_t bytes = kBytes,
                 format::MemorySource source = format::MemorySource::kFramework) {
    format::Alloc event;
    event.address = address;
    event.bytes = bytes;
    event.source = source;
    see(event);
  }
  [[nodiscard]] size_t count(FindingKind kind) const {
    size_t n = 0;
    for (const OpFinding& finding : findings) n += finding.kind == kind ? 1 : 0;
    return n;
  }
  [[nodiscard]] size_t errors() const { return count(FindingKind::kFreedUnderOutput); }
  [[nodiscard]] size_t warnings() const { return count(FindingKind::kOutputAliasesInput); }
};

}  // namespace

TEST_CASE("alias_judge: input freed under a living output is found, with its stacks",
          "[judge][alias]") {
  Program p;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)}));
  p.stack(5);
  REQUIRE(p.warnings() == 1);
  CHECK(p.findings[0].launch_stack == StackId{5});
  CHECK(p.findings[0].bytes == kBytes);
  CHECK(p.findings[0].address == 0x1000);

  p.dies_and_frees(1);
  CHECK(p.errors() == 0);
  p.allocates();
  REQUIRE(p.errors() == 1);
  const OpFinding& finding = p.findings.back();
  CHECK(finding.slot == kOutput0);
  CHECK(finding.other == kInput0);
  CHECK(finding.header.step == 3);
  CHECK(finding.launch_stack == StackId{5});
  CHECK(finding.free_stack == StackId{7});
  CHECK(finding.alloc_stack == StackId{8});
  CHECK(finding.value.storage == 2);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: the next op confirms as well as an allocation", "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies_and_frees(1);
  p.op({tensor(kInput0, 4, 0x900000), tensor(kOutput0, 5, 0xA00000)});
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: a keep-alive torn down is no finding, in either order", "[judge][alias]") {
  SECTION("output first") {
    Program p;
    p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
    p.dies(2);
    p.dies_and_frees(1);
    p.allocates();
    CHECK(p.errors() == 0);
  }
  SECTION("input first, output before anything else happens on the thread") {
    Program p;
    p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
    p.dies_and_frees(1);
    p.dies(2);
    p.allocates();
    CHECK(p.errors() == 0);
  }
}

TEST_CASE("alias_judge: what another thread does in between neither confirms nor withdraws",
          "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies_and_frees(1);
  p.allocates(kThread + 1);
  CHECK(p.errors() == 0);
  p.dies(2);
  p.allocates();
  CHECK(p.errors() == 0);
}

TEST_CASE("alias_judge: a storage may die while its memory lives on", "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies(1);  // a shared block: the allocator frees nothing
  p.allocates();
  CHECK(p.errors() == 0);
  SECTION("until it is freed after all") {
    p.freed(1);
    p.allocates();
    CHECK(p.errors() == 1);
  }
  SECTION("until the output is gone") {
    p.dies(2);
    p.freed(1);
    p.allocates();
    CHECK(p.errors() == 0);
  }
}

TEST_CASE("alias_judge: memory of somebody else is not freed by a storage's death",
          "[judge][alias]") {
  Program p;
  format::Op numpy = tensor(kInput0, 1, 0x1000);
  numpy.value.generation = 0;
  p.op({numpy, tensor(kOutput0, 2, 0x1000)});
  p.dies(1);
  p.allocates();
  CHECK(p.errors() == 0);
  CHECK(p.warnings() == 1);
}

TEST_CASE("alias_judge: without allocator reports the storage's death decides", "[judge][alias]") {
  Program p;
  format::Op input = tensor(kInput0, 1, 0x1000);
  input.value.generation = 0;
  input.frees_reported = false;
  p.op({input, tensor(kOutput0, 2, 0x1000)});
  p.dies(1);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: views share a storage and are no finding unless a schema denies it",
          "[judge][alias]") {
  Program p;
  format::Op view = tensor(kOutput0, 1, 0x1000);
  view.address += 512;
  view.value.offset = 512;
  view.bytes = 1024;
  SECTION("autograd.Function: nothing is declared either way") {
    CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), view}));
  }
  SECTION("torch.library with the alias declared") {
    p.schema_known = p.declared = true;
    CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), view}));
  }
  SECTION("torch.library without") {
    p.schema_known = true;
    CHECK(p.op({tensor(kInput0, 1, 0x1000), view}));
    p.stack(5);
    REQUIRE(p.warnings() == 1);
    CHECK(p.findings[0].address == 0x1000 + 512);
    CHECK(p.findings[0].bytes == 1024);
  }
  p.dies_and_frees(1);
  p.allocates();
  CHECK(p.errors() == 0);
}

TEST_CASE("alias_judge: disjoint parts of one storage do not alias", "[judge][alias]") {
  Program p;
  p.schema_known = true;
  format::Op input = tensor(kInput0, 1, 0x1000);
  input.bytes = 1024;
  format::Op output = tensor(kOutput0, 1, 0x1000);
  output.address += 1024;
  output.value.offset = 1024;
  output.bytes = 1024;
  CHECK_FALSE(p.op({input, output}));
}

TEST_CASE("alias_judge: an in-place op is no finding", "[judge][alias]") {
  Program p;
  format::Op output = tensor(kOutput0, 1, 0x1000);
  output.value.version = 1;
  CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), output}));
  CHECK(p.findings.empty());
}

TEST_CASE("alias_judge: of two outputs only the one that aliases is named", "[judge][alias]") {
  Program p;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kInput1, 2, 0x100000),
              tensor(kOutput0, 3, 0x200000), tensor(kOutput1, 4, 0x100000)}));
  p.dies_and_frees(1);
  p.dies_and_frees(2);
  p.allocates();
  REQUIRE(p.warnings() == 1);
  REQUIRE(p.errors() == 1);
  CHECK(p.findings.back().slot == kOutput1);
  CHECK(p.findings.back().other == kInput1);
}

TEST_CASE("alias_judge: an output inside an input's memory aliases it", "[judge][alias]") {
  Program p;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000 + 4096, 256)}));
  p.dies_and_frees(1);
  p.allocates();
  REQUIRE(p.errors() == 1);
  CHECK(p.findings.back().address == 0x1000 + 4096);
  CHECK(p.findings.back().bytes == 256);
}

TEST_CASE("alias_judge: neighbours and empty tensors do not alias", "[judge][alias]") {
  Program p;
  CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000, 256), tensor(kOutput0, 2, 0x1100, 256)}));
  CHECK_FALSE(p.op({tensor(kInput0, 3, 0x1000, 0), tensor(kOutput0, 4, 0x1000, 0)}));
}

TEST_CASE("alias_judge: a declared alias of a foreign storage warns of nothing but is watched",
          "[judge][alias]") {
  Program p;
  p.schema_known = p.declared = true;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)}));
  p.dies_and_frees(1);
  p.allocates();
  CHECK(p.warnings() == 0);
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: through a chain of ops the owner is the one whose death counts",
          "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.op({tensor(kInput0, 2, 0x1000), tensor(kOutput0, 3, 0x1000)});
  p.dies(2);
  p.allocates();
  CHECK(p.errors() == 0);
  p.dies_and_frees(1);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: the same bug in a loop is said a few times, then at each doubling",
          "[judge][alias]") {
  Program p;
  for (uint64_t i = 0; i < 100; ++i) {
    p.op({tensor(kInput0, 1000 + i, 0x1000), tensor(kOutput0, 2000 + i, 0x1000)});
    p.dies_and_frees(1000 + i);
    p.allocates();
    p.dies(2000 + i);
  }
  CHECK(p.errors() == 8);  // 1 2 3 4 8 16 32 64
  CHECK(p.findings.back().occurrence == 64);
}

TEST_CASE("alias_judge: memory that was freed before its storage's death counts as freed",
          "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.freed(1);
  p.allocates();
  CHECK(p.errors() == 0);
  p.dies(1);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: a launch confirms as well as an allocation", "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies_and_frees(1);
  p.see(format::Launch{});
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: after lost events it accuses nobody", "[judge][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  format::Loss lost;
  SECTION("a death may be among them") {
    lost.reason = format::LossReason::kQueueFull;
    p.see(lost);
    p.dies_and_frees(1);
    p.allocates();
    CHECK(p.errors() == 0);
  }
  SECTION("or behind the point from which CPU tensors are not reported") {
    format::Diagnostic said;
    said.site = format::kCpuMemorySite;
    p.see(said);
    p.dies_and_frees(1);
    p.allocates();
    CHECK(p.errors() == 0);
  }
  SECTION("values are of no account") {
    lost.reason = format::LossReason::kRingFull;
    p.see(lost);
    p.dies_and_frees(1);
    p.allocates();
    CHECK(p.errors() == 1);
  }
}

namespace {

/// In memory that its allocator does not know as given out.
format::Op unowned(StringId slot, uint64_t storage, uint64_t base) {
  format::Op made = tensor(slot, storage, base);
  made.value.generation = 0;
  return made;
}

}  // namespace

TEST_CASE("alias_judge: an output over a temporary that the op freed", "[judge][alias]") {
  Program p;
  format::Alloc temporary;
  temporary.address = 0x5000;
  temporary.stack = StackId{20};
  temporary.source = format::MemorySource::kFramework;
  format::Free end;
  end.address = 0x5000;
  end.generation = 7;
  end.stack = StackId{21};
  end.source = format::MemorySource::kFramework;
  const bool in_the_op = GENERATE(true, false);
  uint64_t now = 0;
  const auto see = [&](format::Event event) {
    format::header_of(event).t_ns = ++now;
    p.see(event);
  };
  format::Op begin;
  if (in_the_op) see(begin);
  see(temporary);
  see(end);
  if (!in_the_op) see(begin);
  begin.moment = format::OpMoment::kEnd;
  see(tensor(kInput0, 1, 0x900000));
  see(unowned(kOutput0, 2, 0x5000));
  see(begin);
  p.stack(5);
  CHECK(p.findings.empty());
  p.gives_out(0x5000 + kBytes);
  p.gives_out(0x4000, 0x1000);
  CHECK(p.findings.empty());
  p.gives_out(0x5800, 256);
  REQUIRE(p.errors() == 1);
  const OpFinding& finding = p.findings[0];
  CHECK(finding.slot == kOutput0);
  CHECK(finding.other == StringId{});
  CHECK(finding.given_to == 256);
  CHECK(finding.launch_stack == StackId{5});
  // What was freed before the op may have been another library's since: its stacks say nothing.
  CHECK(finding.alloc_stack == (in_the_op ? StackId{20} : StackId{}));
  CHECK(finding.free_stack == (in_the_op ? StackId{21} : StackId{}));
  p.gives_out(0x5000);
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: an output over a buffer that the op keeps, which is freed",
          "[judge][alias]") {
  Program p;
  format::Alloc buffer;
  buffer.address = 0x500000;
  buffer.stack = StackId{20};
  p.see(buffer);
  format::Op output = tensor(kOutput0, 2, 0x500000);
  output.value.generation = 7;
  output.borrows = true;
  format::Free end;
  end.address = 0x500000;
  end.generation = 7;
  end.source = format::MemorySource::kFramework;
  end.stack = StackId{21};
  SECTION("is found at the next thing that its thread does") {
    CHECK(p.op({tensor(kInput0, 1, 0x1000), output}));
    p.stack(5);
    p.see(end);
    CHECK(p.findings.empty());
    p.allocates(kThread + 1);
    CHECK(p.findings.empty());
    p.allocates();
    REQUIRE(p.errors() == 1);
    CHECK(p.findings[0].slot == kOutput0);
    CHECK(p.findings[0].other == StringId{});
    CHECK(p.findings[0].given_to == 0);
    CHECK(p.findings[0].alloc_stack == StackId{20});
    CHECK(p.findings[0].launch_stack == StackId{5});
    CHECK(p.findings[0].free_stack == StackId{21});
    p.gives_out(0x500000);
    CHECK(p.errors() == 1);
  }
  SECTION("is not, where the output goes first: it kept the buffer") {
    p.op({tensor(kInput0, 1, 0x1000), output});
    p.dies(2);
    p.see(end);
    p.allocates();
    CHECK(p.findings.empty());
  }
  SECTION("is not, where the output goes with it") {
    p.op({tensor(kInput0, 1, 0x1000), output});
    p.see(end);
    p.dies(2);
    p.allocates();
    CHECK(p.findings.empty());
  }
  SECTION("is not, where the storage can be resized: it gives its own memory away") {
    output.borrows = false;
    CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), output}));
    p.see(end);
    p.allocates();
    CHECK(p.findings.empty());
  }
  SECTION("is found of an output of another op in the same memory, too") {
    p.op({tensor(kInput0, 1, 0x1000), output});
    format::Op input = output;
    input.moment = format::OpMoment::kInput;
    input.slot = kInput0;
    output.value.storage = 3;
    p.declared = true;
    p.op({input, output});
    p.see(end);
    p.allocates();
    CHECK(p.errors() == 2);
  }
}

TEST_CASE("alias_judge: memory of another library accuses nobody", "[judge][alias]") {
  Program p;
  SECTION("that is given out once the output is dead") {
    CHECK(p.op({tensor(kInput0, 1, 0x1000), unowned(kOutput0, 2, 0x500000)}));
    p.dies(2);
  }
  SECTION("that an op works on in place") {
    CHECK_FALSE(p.op({unowned(kInput0, 2, 0x500000), unowned(kOutput0, 2, 0x500000)}));
  }
  SECTION("where frees are not reported") {
    format::Op output = unowned(kOutput0, 2, 0x500000);
    output.frees_reported = false;
    CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), output}));
  }
  SECTION("of a tensor without elements") {
    format::Op output = unowned(kOutput0, 2, 0x500000);
    output.bytes = 0;
    CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), output}));
  }
  SECTION("after lost events") {
    CHECK(p.op({tensor(kInput0, 1, 0x1000), unowned(kOutput0, 2, 0x500000)}));
    format::Loss loss;
    loss.reason = format::LossReason::kQueueFull;
    loss.count = 1;
    p.see(loss);
  }
  SECTION("that is a driver's, which a framework cuts up") {
    CHECK(p.op({tensor(kInput0, 1, 0x1000), unowned(kOutput0, 2, 0x500000)}));
    p.gives_out(0x400000, 0x1000000, format::MemorySource::kDriver);
    CHECK(p.findings.empty());
    return;
  }
  p.gives_out(0x500000);
  CHECK(p.findings.empty());
}

TEST_CASE("alias_judge: an output inside its input's memory is told once", "[judge][alias]") {
  Program p;
  p.declared = true;
  p.op({tensor(kInput0, 1, 0x1000), unowned(kOutput0, 2, 0x1100)});
  p.dies_and_frees(1);
  p.gives_out(0x1000);
  REQUIRE(p.errors() == 1);
  CHECK(p.findings[0].other == kInput0);
  CHECK(p.findings[0].given_to == kBytes);
}

TEST_CASE("alias_judge: of outputs without a known owner the last are followed", "[judge][alias]") {
  Program p;
  for (uint64_t i = 0; i <= AliasJudge::kMostUnowned; ++i)
    p.op({tensor(kInput0, 1, 0x9000), unowned(kOutput0, 100 + i, 0x1000000 * (i + 1))});
  p.gives_out(0x1000000);
  CHECK(p.errors() == 0);
  p.gives_out(0x1000000 * (AliasJudge::kMostUnowned + 1));
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_judge: watches are bounded and refusals counted", "[judge][alias]") {
  Program p;
  for (uint64_t i = 0; i < AliasJudge::kMaxWatches + 10; ++i) {
    p.op({tensor(kInput0, 2 * i + 1, 0x1000 + i * kBytes * 2),
          tensor(kOutput0, 2 * i + 2, 0x1000 + i * kBytes * 2)});
  }
  CHECK(p.judge.watches_refused() == 10);
}
