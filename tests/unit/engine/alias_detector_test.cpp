#include "interposer/engine/alias_detector.h"

#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::engine;
using format::FindingKind;
using format::StackId;
using format::StringId;
using Findings = AliasDetector::Findings;

namespace {

constexpr uint32_t kThread = 11;
constexpr uint64_t kBytes = 98304;
const StringId kInput0{1}, kInput1{2}, kOutput0{3}, kOutput1{4};

/// A tensor that covers its whole storage; its block's generation is the storage's number.
OpOperand tensor(StringId slot, uint64_t storage, uint64_t base, uint64_t bytes = kBytes) {
  OpOperand operand;
  operand.slot = slot;
  operand.is_output = slot == kOutput0 || slot == kOutput1;
  operand.data = operand.storage_base = base;
  operand.bytes = operand.storage_bytes = bytes;
  operand.storage = storage;
  operand.generation = storage;
  operand.frees_reported = true;
  return operand;
}

/// The detector and the order of calls that the observer and the allocator make.
struct Program {
  AliasDetector detector;
  Findings findings;
  bool schema_known = false;
  bool declared = false;

  bool op(std::vector<OpOperand> operands, uint32_t thread = kThread) {
    OpCall call;
    call.thread = thread;
    call.step = 3;
    call.op = StringId{9};
    call.schema_known = schema_known;
    call.declared_alias = declared;
    call.operands = operands;
    return detector.on_op(call, findings);
  }
  void stack(uint32_t id) { detector.on_op_stack(kThread, StackId{id}, findings); }
  /// The weak reference's callback comes first, then the allocator's report.
  void dies(uint64_t storage, uint32_t thread = kThread) {
    detector.on_storage_dead(storage, thread, false, StackId{7}, StackId{8}, findings);
  }
  void freed(uint64_t generation) { detector.on_freed(generation, kThread); }
  void dies_and_frees(uint64_t storage) {
    dies(storage);
    freed(storage);
  }
  void allocates(uint32_t thread = kThread) { detector.on_activity(thread, findings); }
  [[nodiscard]] size_t count(FindingKind kind) const {
    size_t n = 0;
    for (const AliasFinding& finding : findings) n += finding.kind == kind ? 1 : 0;
    return n;
  }
  [[nodiscard]] size_t errors() const { return count(FindingKind::kFreedUnderOutput); }
  [[nodiscard]] size_t warnings() const { return count(FindingKind::kOutputAliasesInput); }
};

}  // namespace

TEST_CASE("alias_detector: input freed under a living output is found, with its stacks",
          "[engine][alias]") {
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
  const AliasFinding& finding = p.findings.back();
  CHECK(finding.output == kOutput0);
  CHECK(finding.input == kInput0);
  CHECK(finding.step == 3);
  CHECK(finding.launch_stack == StackId{5});
  CHECK(finding.free_stack == StackId{7});
  CHECK(finding.alloc_stack == StackId{8});
  CHECK(finding.value.storage == 2);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_detector: the next op confirms as well as an allocation", "[engine][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies_and_frees(1);
  p.op({tensor(kInput0, 4, 0x900000), tensor(kOutput0, 5, 0xA00000)});
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_detector: a keep-alive torn down is no finding, in either order",
          "[engine][alias]") {
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

TEST_CASE("alias_detector: what another thread does in between neither confirms nor withdraws",
          "[engine][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies_and_frees(1);
  p.allocates(kThread + 1);
  CHECK(p.errors() == 0);
  p.dies(2);
  p.allocates();
  CHECK(p.errors() == 0);
}

TEST_CASE("alias_detector: a storage may die while its memory lives on", "[engine][alias]") {
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

TEST_CASE("alias_detector: memory of somebody else is not freed by a storage's death",
          "[engine][alias]") {
  Program p;
  OpOperand numpy = tensor(kInput0, 1, 0x1000);
  numpy.generation = 0;
  p.op({numpy, tensor(kOutput0, 2, 0x1000)});
  p.dies(1);
  p.allocates();
  CHECK(p.errors() == 0);
  CHECK(p.warnings() == 1);
}

TEST_CASE("alias_detector: without allocator reports the storage's death decides",
          "[engine][alias]") {
  Program p;
  OpOperand input = tensor(kInput0, 1, 0x1000);
  input.generation = 0;
  input.frees_reported = false;
  p.op({input, tensor(kOutput0, 2, 0x1000)});
  p.dies(1);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_detector: views share a storage and are no finding unless a schema denies it",
          "[engine][alias]") {
  Program p;
  OpOperand view = tensor(kOutput0, 1, 0x1000);
  view.data += 512;
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

TEST_CASE("alias_detector: disjoint parts of one storage do not alias", "[engine][alias]") {
  Program p;
  p.schema_known = true;
  OpOperand input = tensor(kInput0, 1, 0x1000);
  input.bytes = 1024;
  OpOperand output = tensor(kOutput0, 1, 0x1000);
  output.data += 1024;
  output.bytes = 1024;
  CHECK_FALSE(p.op({input, output}));
}

TEST_CASE("alias_detector: an in-place op is no finding", "[engine][alias]") {
  Program p;
  OpOperand output = tensor(kOutput0, 1, 0x1000);
  output.version = 1;
  CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000), output}));
  CHECK(p.findings.empty());
}

TEST_CASE("alias_detector: of two outputs only the one that aliases is named", "[engine][alias]") {
  Program p;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kInput1, 2, 0x100000),
              tensor(kOutput0, 3, 0x200000), tensor(kOutput1, 4, 0x100000)}));
  p.dies_and_frees(1);
  p.dies_and_frees(2);
  p.allocates();
  REQUIRE(p.warnings() == 1);
  REQUIRE(p.errors() == 1);
  CHECK(p.findings.back().output == kOutput1);
  CHECK(p.findings.back().input == kInput1);
}

TEST_CASE("alias_detector: an output inside an input's memory aliases it", "[engine][alias]") {
  Program p;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000 + 4096, 256)}));
  p.dies_and_frees(1);
  p.allocates();
  REQUIRE(p.errors() == 1);
  CHECK(p.findings.back().address == 0x1000 + 4096);
  CHECK(p.findings.back().bytes == 256);
}

TEST_CASE("alias_detector: neighbours and empty tensors do not alias", "[engine][alias]") {
  Program p;
  CHECK_FALSE(p.op({tensor(kInput0, 1, 0x1000, 256), tensor(kOutput0, 2, 0x1100, 256)}));
  CHECK_FALSE(p.op({tensor(kInput0, 3, 0x1000, 0), tensor(kOutput0, 4, 0x1000, 0)}));
}

TEST_CASE("alias_detector: a declared alias of a foreign storage warns of nothing but is watched",
          "[engine][alias]") {
  Program p;
  p.schema_known = p.declared = true;
  CHECK(p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)}));
  p.dies_and_frees(1);
  p.allocates();
  CHECK(p.warnings() == 0);
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_detector: through a chain of ops the owner is the one whose death counts",
          "[engine][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.op({tensor(kInput0, 2, 0x1000), tensor(kOutput0, 3, 0x1000)});
  p.dies(2);
  p.allocates();
  CHECK(p.errors() == 0);
  WatchedMemory memory;
  CHECK(p.detector.owns_watched(1, memory));
  CHECK(memory.generation == 1);
  CHECK_FALSE(p.detector.owns_watched(2, memory));
  p.dies_and_frees(1);
  p.allocates();
  CHECK(p.errors() == 1);
}

TEST_CASE("alias_detector: the same bug in a loop is said a few times, then at each doubling",
          "[engine][alias]") {
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

TEST_CASE("alias_detector: at the end open warnings are said and open suspicions are not",
          "[engine][alias]") {
  Program p;
  p.op({tensor(kInput0, 1, 0x1000), tensor(kOutput0, 2, 0x1000)});
  p.dies_and_frees(1);
  p.detector.finish(p.findings);
  CHECK(p.warnings() == 1);
  CHECK(p.errors() == 0);
}

TEST_CASE("alias_detector: watches are bounded and refusals counted", "[engine][alias]") {
  Program p;
  for (uint64_t i = 0; i < AliasDetector::kMaxWatches + 10; ++i) {
    p.op({tensor(kInput0, 2 * i + 1, 0x1000 + i * kBytes * 2),
          tensor(kOutput0, 2 * i + 2, 0x1000 + i * kBytes * 2)});
  }
  CHECK(p.detector.watches_refused() == 10);
}
