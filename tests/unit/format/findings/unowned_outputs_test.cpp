#include "tests/support/catch.h"
#include "tests/unit/format/findings/alias_program.h"

using namespace convtrace;
using namespace convtrace::test;

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
