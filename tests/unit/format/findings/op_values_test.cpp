#include "format/findings/ops/op_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "format/findings/ops/op_finding.h"
#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;
using format::FindingKind;
using format::OpMoment;

namespace {

constexpr uint64_t kInput = 0x7000, kOutput = 0x9000, kBytes = 256;

/// An op of a module, and what the observer and the driver tell of its calls.
struct OpProgram {
  format::Definitions definitions;
  OpValues judge{definitions};
  OpValues::Findings findings;
  uint32_t thread = 11, step = 0;
  std::string op = "demo::scale";
  format::Device device;
  uint64_t nans = 0, layout = 0;

  void see(format::Event event) {
    format::header_of(event).thread = thread;
    format::header_of(event).step = step;
    judge.see(event, findings);
  }
  format::Op named(OpMoment moment) {
    format::Op event;
    event.moment = moment;
    event.place.scope = definitions.intern("h.0");
    event.op = definitions.intern(op);
    return event;
  }
  void begin() { see(named(OpMoment::kBegin)); }
  void end() { see(named(OpMoment::kEnd)); }
  void takes(uint64_t address, bool written) {
    format::Op event = named(OpMoment::kInput);
    event.slot = definitions.intern("input:0");
    event.address = address;
    event.bytes = kBytes;
    event.written = written;
    see(event);
  }
  void value(const char* slot, uint64_t hash, uint64_t storage = 1, uint64_t poisoned = 0,
             uint64_t generation = 0) {
    format::TensorStats event;
    event.place.scope = definitions.intern("h.0");
    event.op = definitions.intern(op);
    event.slot = definitions.intern(slot);
    event.value.storage = storage;
    event.value.generation = generation;
    event.address = storage == 1 ? kInput : kOutput;
    event.bytes = kBytes;
    event.stats.hash = hash;
    event.stats.count = kBytes / 4;
    event.poisoned = poisoned;
    event.device = device;
    event.dtype = format::DType::kF32;
    event.stats.nan = nans;
    event.layout = layout;
    const std::vector<std::byte> samples(8 * sizeof(float));
    event.samples = samples;
    see(event);
  }
  /// A buffer of the module that a backward saved, in front of the backward or behind it.
  void buffer(const char* slot, const std::vector<double>& numbers) {
    format::TensorStats event;
    event.place = {definitions.intern("h.0"), 0, format::Phase::kBackward};
    event.op = definitions.intern("ScaleBackward");
    event.slot = definitions.intern(slot);
    event.value.storage = 1;
    event.bytes = numbers.size() * sizeof(double);
    double sum = 0, l1 = 0, squares = 0, largest = 0, smallest = 1e9;
    for (const double number : numbers) {
      sum += number;
      l1 += std::abs(number);
      squares += number * number;
      largest = std::max(largest, std::abs(number));
      smallest = std::min(smallest, std::abs(number));
      event.stats.hash = event.stats.hash * 31 + std::bit_cast<uint64_t>(number);
    }
    event.stats.count = event.stats.finite = numbers.size();
    event.stats.sum = format::WideScalar::f64(sum);
    event.stats.l1 = format::WideScalar::f64(l1);
    event.stats.l2 = std::sqrt(squares);
    event.stats.amax = format::Scalar::f64(largest);
    event.stats.amin_nonzero = format::Scalar::f64(smallest);
    see(event);
  }
  void launch(const char* family, uint32_t grid, uint64_t address) {
    const format::StringId name = definitions.intern(family);
    format::Launch event;
    event.kernel = definitions.intern_kernel({.name = name, .family = name});
    event.grid[0] = grid;
    const format::Operand operand{.address = address, .generation = 1};
    event.operands = {&operand, 1};
    see(event);
  }
  void burst(int configurations) {
    for (int i = 0; i < 4 * configurations; ++i)
      launch("scale", static_cast<uint32_t>(1 + i / 4), kInput);
  }
  [[nodiscard]] size_t count(FindingKind kind) const {
    size_t n = 0;
    for (const OpFinding& finding : findings) n += finding.kind == kind ? 1 : 0;
    return n;
  }
};

}  // namespace

TEST_CASE("op_values: an input that an op changes is found, with both hashes", "[judge][values]") {
  OpProgram p;
  p.begin();
  p.value("input:0", 5);
  p.value("input_after:0", 6);
  p.value("output:0", 7, 2);
  p.end();
  REQUIRE(p.count(FindingKind::kInputMutated) == 1);
  const OpFinding& found = p.findings[0];
  CHECK(p.definitions.text(found.slot) == "input:0");
  CHECK(found.hash_before == 5);
  CHECK(found.hash_after == 6);
  const std::string text = describe(found, p.definitions);
  for (const char* part : {"input:0", "demo::scale", "h.0", "0x5 in front", "0x6 behind",
                           "mark_dirty", "mutates_args"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(record_of(found).level == format::Level::kWarning);
}

TEST_CASE("op_values: a gradient that a backward changes is found", "[judge][values]") {
  OpProgram p;
  p.value("grad_output:0", 5);
  format::Level level = format::Level::kWarning;
  SECTION("of its own") { p.value("grad_output_after:0", 6); }
  SECTION("that another branch is to read") {
    p.value("grad_output_shared:0", 6);
    level = format::Level::kError;
  }
  REQUIRE(p.count(FindingKind::kInputMutated) == 1);
  CHECK(record_of(p.findings[0]).level == level);
  CHECK((describe(p.findings[0], p.definitions).find("others held that memory") !=
         std::string::npos) == (level == format::Level::kError));
}

TEST_CASE("op_values: a buffer that a backward multiplies is found", "[judge][values]") {
  OpProgram p;
  p.buffer("saved_buffer:1", {1, -2, 3, 0.5});
  SECTION("past PyTorch's count") { p.buffer("saved_buffer_after:1", {2, -4, 6, 1}); }
  SECTION("with a count") { p.buffer("saved_buffer_counted:1", {2, -4, 6, 1}); }
  REQUIRE(p.count(FindingKind::kInputMutated) == 1);
  CHECK(p.definitions.text(p.findings[0].slot) == "saved_buffer:1");
  CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
}

TEST_CASE("op_values: what a backward adds to a buffer past PyTorch's count is a hint",
          "[judge][values]") {
  OpProgram p;
  p.buffer("saved_buffer:1", {1, -2, 3, 0.5});
  p.buffer("saved_buffer_after:1", {2, -4, 6, 1.1});
  REQUIRE(p.count(FindingKind::kInputMutated) == 1);
  CHECK(record_of(p.findings[0]).level == format::Level::kInfo);
  const std::string text = describe(p.findings[0], p.definitions);
  CHECK(text.find("an average or other statistics") != std::string::npos);
  CHECK(text.find("work on a copy") == std::string::npos);
}

TEST_CASE("op_values: an average that a backward keeps in a buffer with a count is not told",
          "[judge][values]") {
  OpProgram p;
  SECTION("something is added") {
    p.buffer("saved_buffer:1", {1, -2, 3, 0.5});
    p.buffer("saved_buffer_counted:1", {2, -4, 6, 1.1});
  }
  SECTION("one number") {
    p.buffer("saved_buffer:1", {2, 2, 2, 2});
    p.buffer("saved_buffer_counted:1", {4, 4, 4, 4});
  }
  SECTION("few elements") {
    p.buffer("saved_buffer:1", {1, 2});
    p.buffer("saved_buffer_counted:1", {2, 4});
  }
  CHECK(p.findings.empty());
}

TEST_CASE("op_values: nothing is said of what is unchanged, or of another tensor, call or op",
          "[judge][values]") {
  OpProgram p;
  p.value("input:0", 5);
  SECTION("unchanged") { p.value("input_after:0", 5); }
  SECTION("another storage") { p.value("input_after:0", 6, 2); }
  SECTION("another step") {
    p.step = 1;
    p.value("input_after:0", 6);
  }
  SECTION("another op") {
    p.op = "demo::other";
    p.value("input_after:0", 6);
  }
  SECTION("an output that is the input, written in place") { p.value("output:0", 6); }
  CHECK(p.findings.empty());
}

TEST_CASE("op_values: the same input in the next call is another value", "[judge][values]") {
  OpProgram p;
  for (uint64_t hash = 1; hash < 5; ++hash) {
    p.value("input:0", hash);
    p.value("input_after:0", hash);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("op_values: of a GPU poison is told by samples, when the op is over", "[judge][values]") {
  OpProgram p;
  p.device = {format::Device::Type::kCuda, 0};
  p.begin();
  p.end();
  SECTION("of its own") {
    p.value("input:0", 5);
    p.value("output:0", 7, 2, 3);
    REQUIRE(p.count(FindingKind::kNeverWritten) == 1);
    const std::string text = describe(p.findings[0], p.definitions);
    CHECK(text.find("3 of 8 elements that were looked at") != std::string::npos);
  }
  SECTION("with the memory's owner before it, though its values come late") {
    p.value("output:0", 6, 2, 0, 20);
    p.value("output:1", 6, 2, 0, 21);
    p.value("output:3", 6, 2, 0, 20);
    p.value("output:2", 7, 2, 3, 21);
    REQUIRE(p.count(FindingKind::kNeverWritten) == 1);
    CHECK(describe(p.findings[0], p.definitions).find("what output:0 of op demo::scale") !=
          std::string::npos);
  }
  SECTION("from an input of which only NaNs were seen") {
    p.nans = 1;
    p.value("input:0", 5);
    p.value("output:0", 7, 2, 3);
    CHECK(p.findings.empty());
    p.nans = 0;
    p.op = "demo::other";
    p.value("output:0", 7, 2, 3);
    CHECK(p.count(FindingKind::kNeverWritten) == 1);
  }
}

TEST_CASE("op_values: poison in an output is told, unless it came in", "[judge][values]") {
  OpProgram p;
  p.begin();
  SECTION("of its own") {
    p.value("input:0", 5);
    p.value("output:0", 7, 2, 3);
    REQUIRE(p.count(FindingKind::kNeverWritten) == 1);
    const std::string text = describe(p.findings[0], p.definitions);
    CHECK(text.find("3 of 64 elements") != std::string::npos);
    CHECK(text.find("CONVTRACE_POISON") != std::string::npos);
  }
  SECTION("with the memory's owner before it, if that is known") {
    p.step = 4;
    p.value("output:0", 6, 2, 0, 20);
    p.value("output:1", 6, 3, 0, 20);
    p.step = 9;
    p.value("output:2", 7, 4, 3, 21);
    REQUIRE(p.count(FindingKind::kNeverWritten) == 1);
    const std::string text = describe(p.findings[0], p.definitions);
    INFO(text);
    CHECK(text.find("what output:0 of op demo::scale in module h.0 (call 0, forward) in step 4, "
                    "whose memory it was before, left there") != std::string::npos);
    p.value("output:1", 7, 5, 3, 0);
    REQUIRE(p.count(FindingKind::kNeverWritten) == 2);
    CHECK(describe(p.findings[1], p.definitions).find("what the memory's owner before left") !=
          std::string::npos);
  }
  SECTION("from an input") {
    p.value("input:0", 5, 1, 1);
    p.value("output:0", 7, 2, 3);
    CHECK(p.findings.empty());
  }
  SECTION("from an input of an op around it") {
    p.value("input:0", 5, 1, 1);
    p.op = "demo::inner";
    p.begin();
    p.value("output:0", 7, 2, 3);
    p.end();
    CHECK(p.count(FindingKind::kNeverWritten) == 1);
    p.op = "demo::scale";
    p.value("output:0", 7, 2, 3);
    CHECK(p.count(FindingKind::kNeverWritten) == 1);
  }
  p.end();
}

TEST_CASE("op_values: a kernel tried out on what it writes in place is found at the next call",
          "[judge][autotune]") {
  OpProgram p;
  const auto first_call = [&p](bool declared) {
    p.begin();
    p.value("input:0", 5);
    p.burst(3);
    p.takes(kInput, declared);
    p.end();
    if (!declared) p.value("input_after:0", 6);  // a device's values come later
  };
  const auto later_call = [&p] {
    p.step = 1;
    p.begin();
    p.launch("scale", 2, kInput);
    p.takes(kInput, true);
    p.end();
  };
  SECTION("declared as written") { first_call(true); }
  SECTION("found to be written") { first_call(false); }
  CHECK(p.count(FindingKind::kAutotuneMutation) == 0);
  later_call();
  REQUIRE(p.count(FindingKind::kAutotuneMutation) == 1);
  const OpFinding& found = p.findings.back();
  CHECK(found.count == 12);
  CHECK(found.header.step == 0);
  const std::string text = describe(found, p.definitions);
  CHECK(text.find("Kernel scale was launched 12 times") == 0);
  CHECK(text.find("restore_value") != std::string::npos);
  later_call();
  CHECK(p.count(FindingKind::kAutotuneMutation) == 1);
}

TEST_CASE("op_values: several launches are no trial if", "[judge][autotune]") {
  OpProgram p;
  bool written = true;
  p.begin();
  SECTION("they all have one configuration") { p.burst(1); }
  SECTION("what they write is the op's own") {
    written = false;
    p.burst(3);
  }
  SECTION("they work on different parts") {
    for (uint32_t i = 0; i < 8; ++i) p.launch("scale", 1 + i, kInput + 8 * i);
  }
  SECTION("they are another op's, inside") {
    p.op = "demo::inner";
    p.begin();
    p.burst(3);
    p.end();
    p.op = "demo::scale";
  }
  p.takes(kInput, written);
  p.end();
  p.begin();
  p.launch("scale", 1, kInput);
  p.end();
  CHECK(p.findings.empty());
}

TEST_CASE("op_values: an op of several passes makes them each time", "[judge][autotune]") {
  OpProgram p;
  for (p.step = 0; p.step < 3; ++p.step) {
    p.begin();
    p.burst(2);
    p.takes(kInput, true);
    p.end();
  }
  CHECK(p.findings.empty());
}

TEST_CASE("op_values: an op that raised an exception has no end, and is in nobody's way",
          "[judge][values]") {
  OpProgram p;
  p.begin();
  p.value("input:0", 5, 1, 1);
  p.op = "demo::raises";
  for (int i = 0; i < 100; ++i) p.begin();
  p.op = "demo::scale";
  p.begin();
  p.value("output:0", 7, 2, 3);
  p.end();
  CHECK(p.count(FindingKind::kNeverWritten) == 1);
}

TEST_CASE("op_values: after lost events no op is taken to be open", "[judge][values]") {
  OpProgram p;
  p.begin();
  p.burst(3);
  p.see(format::Loss{.header = {}, .reason = format::LossReason::kQueueFull, .count = 1});
  p.takes(kInput, true);
  p.end();
  p.begin();
  p.launch("scale", 1, kInput);
  p.end();
  p.value("output:0", 7, 2, 3);
  CHECK(p.findings.empty());
}

TEST_CASE("op_values: an operand and a transposed view of it are two operands", "[judge][values]") {
  OpProgram p;
  p.op = "aten::mm";
  p.value("input:0", 5);
  p.layout = 7;
  p.value("input:1", 6);
  p.value("input_after:1", 6);
  p.layout = 0;
  SECTION("read alone") {
    p.value("input_after:0", 5);
    CHECK(p.findings.empty());
  }
  SECTION("written") {
    p.value("input_after:0", 8);
    REQUIRE(p.findings.size() == 1);
    CHECK(describe(p.findings[0], p.definitions).find("a kernel that a library has registered") !=
          std::string::npos);
  }
}
