#include "tests/support/catch.h"
#include "tools/diff/read/alias_patterns.h"

using namespace convtrace;
using namespace convtrace::diff;
using format::OpMoment;

namespace {

/// One run of an op and a kernel in module h.0.
struct PatternRun {
  format::Definitions& names;
  AliasPatterns patterns{};
  uint32_t step = 0;

  void tensor(OpMoment moment, const char* slot, uint64_t address, uint64_t bytes) {
    format::Op event;
    event.header.step = step;
    event.moment = moment;
    event.address = address;
    event.bytes = bytes;
    patterns.take(event, op(), names.intern(slot));
  }
  /// @param second  where its second input lies; the first lies at 0x1000, the output at 0x9000.
  void call(uint64_t second, uint64_t bytes = 256) {
    tensor(OpMoment::kBegin, "", 0, 0);
    tensor(OpMoment::kInput, "input:0", 0x1000, 256);
    tensor(OpMoment::kInput, "input:1", second, bytes);
    tensor(OpMoment::kOutput, "output:0", 0x9000, 256);
    tensor(OpMoment::kEnd, "", 0, 0);
  }
  bool launch(std::vector<format::Operand> operands) {
    format::Launch event;
    event.header.step = step;
    event.operands = operands;
    const bool overlaps = AliasPatterns::overlaps(event);
    patterns.take(event,
                  {names.intern("h.0"), names.intern("scale"), format::Phase::kForward, true});
    return overlaps;
  }
  [[nodiscard]] AliasPatterns::Target op() const {
    return {names.intern("h.0"), names.intern("demo::f"), format::Phase::kForward, false};
  }
};

format::Operand pointer(uint16_t param, uint64_t address, uint64_t generation = 7) {
  return {.param = param, .address = address, .generation = generation};
}

std::vector<AliasDifference> compared(const PatternRun& base, const PatternRun& cand) {
  std::vector<AliasDifference> found;
  AliasPatterns::compare(base.patterns, cand.patterns, 3, base.names, found);
  return found;
}

}  // namespace

TEST_CASE("alias patterns: operands that overlap in one run alone are told", "[diff][alias]") {
  format::Definitions names;
  PatternRun base{names}, cand{names};
  base.call(0x2000);
  cand.call(0x5000);
  cand.step = 2;
  SECTION("the same memory") { cand.call(0x1000); }
  SECTION("inside") { cand.call(0x1080, 8); }
  SECTION("from below") { cand.call(0x0F80); }
  const auto found = compared(base, cand);
  REQUIRE(found.size() == 1);
  CHECK(found[0].in_cand);
  CHECK(found[0].rank == 3);
  CHECK(found[0].step == 2);
  CHECK(found[0].scope == "h.0");
  CHECK(found[0].op == "demo::f");
  CHECK(found[0].kernel.empty());
  CHECK(found[0].slot == "input:0");
  CHECK(found[0].other == "input:1");
  const auto back = compared(cand, base);
  REQUIRE(back.size() == 1);
  CHECK_FALSE(back[0].in_cand);
}

TEST_CASE("alias patterns: where and how often operands overlap is no difference",
          "[diff][alias]") {
  format::Definitions names;
  PatternRun base{names}, cand{names};
  base.call(0x1000);
  base.call(0x2000);
  cand.call(0x4000);
  cand.call(0x10C0, 32);
  CHECK(compared(base, cand).empty());
}

TEST_CASE("alias patterns: neighbours, empty tensors and ops of one run alone say nothing",
          "[diff][alias]") {
  format::Definitions names;
  PatternRun base{names}, cand{names};
  SECTION("neighbours") {
    base.call(0x2000);
    cand.call(0x1100);
  }
  SECTION("empty") {
    base.call(0x2000);
    cand.call(0x1000, 0);
  }
  SECTION("not called") { cand.call(0x1000); }
  CHECK(compared(base, cand).empty());
}

TEST_CASE("alias patterns: of a kernel, two pointers that are one address", "[diff][alias]") {
  format::Definitions names;
  PatternRun base{names}, cand{names};
  CHECK_FALSE(base.launch({pointer(0, 0x1000), pointer(1, 0x2000)}));
  SECTION("told by their positions") {
    CHECK(cand.launch({pointer(0, 0x1000), pointer(1, 0x1000)}));
    const auto found = compared(base, cand);
    REQUIRE(found.size() == 1);
    CHECK(found[0].kernel == "scale");
    CHECK(found[0].op.empty());
    CHECK(found[0].slot == "arg:0");
    CHECK(found[0].other == "arg:1");
  }
  SECTION("not of memory that is not known") {
    CHECK_FALSE(cand.launch({pointer(0, 0x1000, 0), pointer(1, 0x1000, 0)}));
    CHECK(compared(base, cand).empty());
  }
  SECTION("not of words inside one structure") {
    CHECK_FALSE(cand.launch({pointer(0, 0x1000), pointer(0, 0x1000)}));
    CHECK(compared(base, cand).empty());
  }
}
