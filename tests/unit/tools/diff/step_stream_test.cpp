#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tools/diff/read/equal_steps.h"
#include "tools/diff/read/step_stream.h"

namespace {

using namespace convtrace;

struct Written {
  uint32_t step;
  uint64_t t_ns;
  const char* slot;
};

/// A trace of these events, read step by step.
class Stream {
 public:
  template <typename Write>
  explicit Stream(const Write& write) {
    test::TraceBuilder trace(dir_ / "a.ctrace");
    write(trace);
    trace.close();
    auto reader = reader::TraceReader::open(dir_ / "a.ctrace");
    REQUIRE(reader.ok());
    stream_.emplace(std::move(reader).value(), names_, launches_);
  }
  diff::StepStream* operator->() { return &*stream_; }
  [[nodiscard]] std::string text(format::StringId id) const { return std::string(names_.text(id)); }

 private:
  test::TempDir dir_;
  format::Definitions names_;
  diff::LaunchKeys launches_;
  std::optional<diff::StepStream> stream_;
};

/// Steps of a trace with these values, each as its slots in order: "0:ab" for a and b in step 0.
std::vector<std::string> steps_of(const std::vector<Written>& values, uint64_t* late = nullptr) {
  Stream stream([&values](test::TraceBuilder& trace) {
    for (const Written& value : values) {
      format::TensorStats event;
      event.header.step = value.step;
      event.header.t_ns = value.t_ns;
      event.slot = trace.definitions().intern(value.slot);
      trace.event(event);
    }
  });
  std::vector<std::string> steps;
  for (const diff::StepRecords* step = stream->peek(); step != nullptr; step = stream->peek()) {
    steps.push_back(std::to_string(step->step) + ':');
    for (const diff::ValueRecord& r : step->values) steps.back() += stream.text(r.key.slot);
    stream->pop();
  }
  if (late != nullptr) *late = stream->late_values();
  return steps;
}

using Steps = std::vector<std::string>;

}  // namespace

TEST_CASE("step_stream: results that were written late stand where they happened",
          "[diff][stream]") {
  CHECK(steps_of({{0, 10, "a"}, {0, 30, "c"}, {0, 20, "b"}}) == Steps{"0:abc"});
  CHECK(steps_of({{0, 10, "a"}, {1, 50, "x"}, {0, 20, "b"}, {2, 90, "y"}}) ==
        Steps{"0:ab", "1:x", "2:y"});
}

TEST_CASE("step_stream: what comes after its step was given out is counted, not compared",
          "[diff][stream]") {
  uint64_t late = 0;
  CHECK(steps_of({{0, 1, "a"}, {1, 2, "b"}, {2, 3, "c"}, {3, 4, "d"}, {0, 5, "e"}}, &late) ==
        Steps{"0:a", "1:b", "2:c", "3:d"});
  CHECK(late == 1);
}

TEST_CASE("step_stream: repeated keys are counted by thread, however threads take turns",
          "[diff][stream]") {
  const auto hashes = [](const std::vector<std::pair<uint32_t, uint64_t>>& written) {
    Stream stream([&written](test::TraceBuilder& trace) {
      for (const auto& [thread, hash] : written) {
        format::TensorStats event;
        event.header.thread = thread;
        event.stats.hash = hash;
        trace.event(event);
      }
    });
    const diff::StepRecords* step = stream->peek();
    REQUIRE(step != nullptr);
    std::vector<uint64_t> by_occurrence(step->values.size());
    for (const diff::ValueRecord& r : step->values)
      by_occurrence.at(r.key.occurrence) = r.stats.hash;
    return by_occurrence;
  };
  const std::vector<uint64_t> expected = {1, 2, 3, 4};
  CHECK(hashes({{7, 1}, {7, 2}, {8, 3}, {8, 4}}) == expected);
  CHECK(hashes({{17, 1}, {18, 3}, {17, 2}, {18, 4}}) == expected);
}

TEST_CASE("step_stream: values of an unknown step come last", "[diff][stream]") {
  CHECK(steps_of({{format::kNoStep, 1, "u"}, {0, 2, "a"}, {1, 3, "b"}}) ==
        Steps{"0:a", "1:b", std::to_string(format::kNoStep) + ":u"});
}

TEST_CASE("step_stream: steps that were not recorded leave a gap, not empty steps",
          "[diff][stream]") {
  CHECK(steps_of({{0, 1, "a"}, {50, 2, "b"}, {100, 3, "c"}}) == Steps{"0:a", "50:b", "100:c"});
}

namespace {

/// Counts what is read of a file.
class CountingSource final : public reader::ByteSource {
 public:
  CountingSource(const std::string& path, uint64_t& bytes) : bytes_(bytes) {
    auto file = reader::FileSource::open(path);
    REQUIRE(file.ok());
    file_ = std::move(file).value();
  }
  [[nodiscard]] uint64_t size() const noexcept override { return file_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> to) const noexcept override {
    bytes_ += to.size();
    return file_->read(offset, to);
  }

 private:
  std::unique_ptr<reader::ByteSource> file_;
  uint64_t& bytes_;
};

constexpr uint32_t kSteps = 200, kDifferent = 120;

/// A chunk for each step; the values of kDifferent depend on `value`. @param notes  two findings
/// and a loss in equal steps.
void write_long(const std::string& path, float value, bool notes = false, bool close = true) {
  test::TraceBuilder trace(path);
  for (uint32_t step = 0; step < kSteps; ++step) {
    trace.step(step);
    for (uint32_t i = 0; i < 300; ++i) {
      const float first = step == kDifferent ? value : static_cast<float>(step * i);
      trace.stats({.scope = "h." + std::to_string(i), .values = {first, 1, static_cast<float>(i)}});
    }
    trace.launch({.kernel = "gemm"});
    if (notes && step == 7) trace.finding({.level = format::Level::kError});
    if (notes && step == 8) trace.finding({.level = format::Level::kWarning});
    if (notes && step == 9) trace.loss(format::LossReason::kQueueFull, 5);
    trace.flush();
  }
  close ? trace.close() : trace.leave_unclosed();
}

}  // namespace

TEST_CASE("equal_steps: what is equal is not decoded, but for findings and losses",
          "[diff][stream]") {
  const test::TempDir dir;
  write_long(dir / "a.ctrace", 1);
  write_long(dir / "b.ctrace", 2, true);
  uint64_t bytes = 0;
  const auto open = [&](const char* name) {
    auto reader = reader::TraceReader::open(std::make_unique<CountingSource>(dir / name, bytes));
    REQUIRE(reader.ok());
    return std::move(reader).value();
  };
  auto a = open("a.ctrace"), b = open("b.ctrace");
  const uint64_t whole = a->file_bytes() + b->file_bytes();
  const diff::EqualSteps equal(*a, *b, false);
  REQUIRE(equal.unread().size() == kSteps - 5);  // nor the last, which may be evaluation alone
  CHECK(equal.is_read_once(0));  // it alone may have parameters that are not trained
  CHECK(equal.unread().front().values == 300);
  CHECK(equal.taken(kDifferent - 3, diff::Side::kBase) == reader::kNoKinds);
  CHECK(equal.is_read_once(kDifferent - 1));  // it leads to the one that differs
  CHECK(equal.taken(kDifferent, diff::Side::kBase) ==
        reader::kKindSet<format::TensorStats, format::Op>);
  CHECK(equal.taken(kDifferent + 1, diff::Side::kCand) == reader::kNoKinds);
  CHECK(equal.same_launches(kDifferent) == 1);

  const uint64_t opened = bytes;
  format::Definitions names;
  diff::LaunchKeys launches;
  diff::StepStream stream(std::move(b), names, launches);
  stream.leave_out(equal, diff::Side::kCand);
  const diff::StepRecords* step = stream.peek();
  REQUIRE(step != nullptr);
  CHECK(step->step == kDifferent);
  CHECK(step->values.size() == 300);
  CHECK(step->launches.empty());
  stream.pop();
  CHECK(stream.peek() == nullptr);
  CHECK(stream.findings().count == 2);
  CHECK(stream.findings().errors == 1);
  CHECK(stream.losses().of(format::LossReason::kQueueFull) == 5);
  CHECK(stream.late_values() == 0);
  CHECK(bytes - opened < whole / 2);  // of the one trace, each chunk once
  INFO("opening and sums: " << opened << " of " << whole);
  CHECK(opened * 2 < whole);
}

TEST_CASE("equal_steps: where every value is wanted the baseline's stand for both",
          "[diff][stream]") {
  const test::TempDir dir;
  write_long(dir / "a.ctrace", 1);
  write_long(dir / "b.ctrace", 2);
  auto a = reader::TraceReader::open(dir / "a.ctrace");
  auto b = reader::TraceReader::open(dir / "b.ctrace");
  REQUIRE((a.ok() && b.ok()));
  const diff::EqualSteps equal(*a.value(), *b.value(), true);
  CHECK(equal.unread().empty());
  CHECK(equal.is_read_once(0));
  CHECK_FALSE(equal.is_read_once(kDifferent));
  CHECK(equal.same_launches(0) == 1);
  CHECK(equal.taken(0, diff::Side::kBase) == reader::kKindSet<format::TensorStats, format::Op>);
  CHECK(equal.taken(0, diff::Side::kCand) == reader::kNoKinds);
  format::RecordHeader chunk;
  chunk.step_begin = chunk.step_end = 0;
  CHECK(equal.wanted(chunk, diff::Side::kCand) == reader::kNoKinds);
  CHECK(equal.wanted(chunk, diff::Side::kBase) ==
        reader::kKindSet<format::TensorStats, format::Op>);
}

TEST_CASE("equal_steps: of a killed run's trace the last step alone is read", "[diff][stream]") {
  const test::TempDir dir;
  write_long(dir / "a.ctrace", 1);
  write_long(dir / "b.ctrace", 1, false, false);
  auto a = reader::TraceReader::open(dir / "a.ctrace");
  auto b = reader::TraceReader::open(dir / "b.ctrace");
  REQUIRE((a.ok() && b.ok()));
  CHECK(b.value()->state() == reader::TraceState::kUnclosed);
  CHECK(diff::EqualSteps(*a.value(), *b.value(), false).unread().size() == kSteps - 1);
}

TEST_CASE("equal_steps: values of no known step make every chunk wanted", "[diff][stream]") {
  const test::TempDir dir;
  for (const char* name : {"a.ctrace", "b.ctrace"}) {
    test::TraceBuilder trace(dir / name);
    trace.step(0).stats({.values = {1}});
    trace.step(format::kNoStep).stats({.values = {1}});
    trace.close();
  }
  auto a = reader::TraceReader::open(dir / "a.ctrace");
  auto b = reader::TraceReader::open(dir / "b.ctrace");
  REQUIRE((a.ok() && b.ok()));
  const diff::EqualSteps equal(*a.value(), *b.value(), false);
  CHECK(equal.unread().empty());
  CHECK((equal.wanted({}, diff::Side::kCand) & reader::kKindSet<format::TensorStats>) != 0);
}

TEST_CASE("step stream: calls in evaluation mode that got a gradient are of training",
          "[diff][step_stream]") {
  using format::Phase;
  struct Line {
    Phase phase;
    const char* scope;
    uint32_t call;
    const char* slot;
    const char* op = "";
  };
  const auto read = [](const std::vector<Line>& lines) {
    Stream stream([&](test::TraceBuilder& trace) {
      uint64_t t = 0;
      for (const Line& line : lines) {
        format::TensorStats event;
        event.header.step = 0;
        event.header.t_ns = ++t;
        event.place = {.scope = trace.definitions().intern(line.scope),
                       .call = line.call,
                       .phase = line.phase};
        event.slot = trace.definitions().intern(line.slot);
        if (*line.op != 0) event.op = trace.definitions().intern(line.op);
        trace.event(event);
      }
    });
    std::vector<std::string> found;
    const diff::StepRecords* step = stream->peek();
    REQUIRE(step != nullptr);
    for (const diff::ValueRecord& r : step->values)
      found.push_back(std::string(to_string(r.key.phase)) + ' ' + stream.text(r.key.scope) + ' ' +
                      std::to_string(r.key.call) + ' ' + stream.text(r.key.slot));
    return found;
  };
  // A validation call before it, which no gradient reached; its number is not counted.
  const std::vector<Line> trained = {
      {Phase::kEvaluation, "m", 0, "input:0"},      {Phase::kEvaluation, "m", 0, "output:0"},
      {Phase::kEvaluation, "m", 1, "input:0"},      {Phase::kEvaluation, "m.fc", 1, "input:0"},
      {Phase::kEvaluation, "m.fc", 1, "output:0"},  {Phase::kEvaluation, "m.mask", 1, "output:0"},
      {Phase::kEvaluation, "m", 1, "output:0"},     {Phase::kEvaluation, "m", 1, "input:1", "loss"},
      {Phase::kBackward, "m", 1, "grad_output:0"},  {Phase::kBackward, "m.fc", 1, "grad_output:0"},
      {Phase::kBackward, "m.fc", 1, "grad:weight"},
  };
  CHECK(read(trained) ==
        std::vector<std::string>{
            "evaluation m 0 input:0", "evaluation m 0 output:0", "data m 0 input:0",
            "forward m.fc 0 input:0", "forward m.fc 0 output:0", "forward m.mask 0 output:0",
            "forward m 0 output:0", "forward m 0 input:1", "backward m 0 grad_output:0",
            "backward m.fc 0 grad_output:0", "backward m.fc 1 grad:weight"});
  // A model that the step trains otherwise, too, keeps its evaluation.
  std::vector<Line> both = trained;
  both.insert(both.begin(), {Phase::kForward, "m", 0, "output:0"});
  both.insert(both.begin(), {Phase::kForward, "m.fc", 0, "output:0"});
  CHECK(read(both)[4] == "evaluation m 1 input:0");
  // No gradient at all.
  CHECK(read({trained.begin(), trained.begin() + 8})[2] == "evaluation m 1 input:0");
}
