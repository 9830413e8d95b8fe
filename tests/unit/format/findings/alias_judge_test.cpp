#include "tests/support/catch.h"
#include "tests/unit/format/findings/alias_program.h"

using namespace convtrace;
using namespace convtrace::test;

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

TEST_CASE("alias_judge: watches are bounded and refusals counted", "[judge][alias]") {
  Program p;
  for (uint64_t i = 0; i < AliasJudge::kMaxWatches + 10; ++i) {
    p.op({tensor(kInput0, 2 * i + 1, 0x1000 + i * kBytes * 2),
          tensor(kOutput0, 2 * i + 2, 0x1000 + i * kBytes * 2)});
  }
  CHECK(p.judge.watches_refused() == 10);
}
