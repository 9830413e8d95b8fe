#include "interposer/core/writer/flight_recorder.h"

#include <limits>
#include <string_view>

#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"

using namespace convtrace;
using namespace convtrace::engine;
using namespace convtrace::test;

namespace {

settings::Ring ring_of(const char* text) {
  settings::Ring ring;
  REQUIRE(settings::parse_ring(text, ring).empty());
  return ring;
}

format::Step step(uint32_t index) {
  format::Step event;
  event.index = index;
  return event;
}

format::TensorStats tensor_with_nan() {
  format::TensorStats event;
  event.stats.nan = 1;
  return event;
}

struct Recording {
  explicit Recording(const char* ring, uint64_t max_bytes = FlightRecorder::kMaxBytes)
      : recorder(ring_of(ring), max_bytes) {
    auto made = format::TraceWriter::create(std::make_unique<MemorySink>(bytes),
                                            format::TraceMeta{}, definitions);
    REQUIRE(made.ok());
    writer = std::move(made).value();
  }

  /// A step with some launches, told apart by their stream.
  void keep_step(uint32_t index, int launches) {
    REQUIRE(recorder.keep(step(index)) == nullptr);
    for (int i = 0; i < launches; ++i) {
      format::Launch launch;
      launch.stream = index;
      launch.operands = operands;
      REQUIRE(recorder.keep(launch) == nullptr);
    }
  }

  /// As the writer thread does.
  void record(const format::Event& event) {
    if (const char* reason = recorder.keep(event)) REQUIRE(recorder.write(*writer, reason).ok());
  }

  struct Found {
    std::vector<uint32_t> steps;
    uint64_t tensors = 0;
    uint64_t launches = 0;
    std::vector<std::string> said;
  };
  Found written() {
    auto opened = reader::TraceReader::open(std::make_unique<reader::MemorySource>(*bytes));
    REQUIRE(opened.ok());
    Found found;
    while (const format::Event* event = opened.value()->next()) {
      if (const auto* begun = std::get_if<format::Step>(event)) found.steps.push_back(begun->index);
      if (std::holds_alternative<format::TensorStats>(*event)) ++found.tensors;
      if (const auto* launch = std::get_if<format::Launch>(event)) {
        ++found.launches;
        CHECK(launch->operands.size() == 2);
        CHECK(launch->operands[1].address == 99);
      }
      if (const auto* text = std::get_if<format::Diagnostic>(event))
        found.said.emplace_back(text->message);
    }
    return found;
  }

  SharedBytes bytes = std::make_shared<std::vector<std::byte>>();
  format::Definitions definitions;
  std::unique_ptr<format::TraceWriter> writer;
  FlightRecorder recorder;
  std::vector<format::Operand> operands{{}, {.address = 99}};
};

}  // namespace

TEST_CASE("flight_recorder: the last steps are written, those before are counted", "[engine]") {
  Recording r("3");
  for (uint32_t i = 0; i < 10; ++i) r.keep_step(i, 4);
  CHECK(r.written().steps.empty());
  REQUIRE(r.recorder.write(*r.writer, "test").ok());
  const auto found = r.written();
  CHECK(found.steps == std::vector<uint32_t>{7, 8, 9});
  CHECK(found.launches == 12);
  REQUIRE(found.said.size() == 1);
  CHECK(found.said[0].find("trigger test") == 0);
  CHECK(found.said[0].find("; 35 older events") != std::string::npos);
}

TEST_CASE("flight_recorder: what was written is not written again", "[engine]") {
  Recording r("3");
  r.keep_step(0, 1);
  REQUIRE(r.recorder.write(*r.writer, "one").ok());
  r.keep_step(1, 1);
  REQUIRE(r.recorder.write(*r.writer, "two").ok());
  REQUIRE(r.writer->flush().ok());
  const auto found = r.written();
  CHECK(found.steps == std::vector<uint32_t>{0, 1});
  CHECK(found.launches == 2);
  CHECK(found.said[1].find("; 0 older events") != std::string::npos);
}

TEST_CASE("flight_recorder: memory is bounded, whatever the length of a step", "[engine]") {
  constexpr uint64_t kBound = 1 << 20;
  Recording r("1000", kBound);
  constexpr int kLaunches = 50'000;
  r.keep_step(0, kLaunches);
  REQUIRE(r.recorder.write(*r.writer, "test").ok());
  const auto found = r.written();
  CHECK(found.launches > 1000);
  CHECK(found.launches * sizeof(format::Launch) < kBound);
  const std::string missing = std::to_string(kLaunches + 1 - found.launches);
  CHECK(found.said[0].find("; " + missing + " older events") != std::string::npos);
}

TEST_CASE("flight_recorder: short steps are all kept, however many they are", "[engine]") {
  Recording r("1000");
  for (uint32_t i = 0; i < 3000; ++i) r.keep_step(i, 3);
  REQUIRE(r.recorder.write(*r.writer, "test").ok());
  const auto found = r.written();
  CHECK(found.steps.size() == 1000);
  CHECK(found.launches == 3000);
}

TEST_CASE("flight_recorder: NaN, infinity and error findings are triggers if they are asked for",
          "[engine]") {
  const auto trigger = [](const char* ring, const format::Event& event) {
    FlightRecorder recorder(ring_of(ring));
    const char* const reason = recorder.keep(event);
    return std::string(reason != nullptr ? reason : "");
  };
  format::TensorStats tensor;
  tensor.stats.count = 2;
  CHECK(trigger("2", tensor).empty());
  tensor.stats.neg_inf = 1;  // as in every attention mask
  CHECK(trigger("2", tensor).empty());
  tensor.stats.pos_inf = 1;
  CHECK(trigger("2", tensor) == "nan");
  CHECK(trigger("2", tensor_with_nan()) == "nan");
  CHECK(trigger("2,nan", tensor) == "nan");
  CHECK(trigger("2,USR2,alias", tensor).empty());
  tensor.capture = format::Capture::kHash;  // its counts mean nothing
  CHECK(trigger("2,nan", tensor).empty());
  format::Finding finding;
  finding.level = format::Level::kError;
  CHECK(trigger("2", finding) == "alias");
  CHECK(trigger("2,nan", finding).empty());
  CHECK(trigger("2,USR2,alias", finding) == "alias");
  finding.suppressed = true;
  CHECK(trigger("2,alias", finding).empty());
  finding.suppressed = false;
  finding.level = format::Level::kWarning;
  CHECK(trigger("2,alias", finding).empty());
}

TEST_CASE("flight_recorder: a run that has diverged is written once a step, and whole",
          "[engine]") {
  Recording r(GENERATE("1", "3"));
  constexpr uint32_t kSteps = 20, kTensors = 50;
  for (uint32_t i = 0; i < kSteps; ++i) {
    r.record(step(i));
    for (uint32_t t = 0; t < kTensors; ++t) r.record(tensor_with_nan());
  }
  REQUIRE(r.recorder.finish(*r.writer).ok());
  REQUIRE(r.writer->close().ok());
  const auto found = r.written();
  CHECK(found.steps.size() == kSteps);
  CHECK(found.tensors == kSteps * kTensors);
  // The first tensor, each Step behind it and the end; one text more says what was not written.
  CHECK(found.said.size() == 1 + (kSteps - 1) + 1 + 1);
  CHECK(found.said.back().find("0 events") == 0);
}

TEST_CASE("flight_recorder: a finding among the NaNs of a step is written at once", "[engine]") {
  Recording r("3");
  CHECK(r.recorder.keep(tensor_with_nan()) != nullptr);
  format::Finding finding;
  finding.level = format::Level::kError;
  const char* const reason = r.recorder.keep(finding);
  REQUIRE(reason != nullptr);
  CHECK(std::string_view(reason) == "alias");
  CHECK(r.recorder.keep(finding) == nullptr);
  CHECK(r.recorder.keep(tensor_with_nan()) == nullptr);
}

TEST_CASE("flight_recorder: the first write of a run is flushed, chunks take those behind it",
          "[engine]") {
  Recording r("3");
  r.record(step(0));
  r.record(tensor_with_nan());
  CHECK(r.written().tensors == 1);
  r.record(step(1));
  r.record(tensor_with_nan());
  CHECK(r.written().tensors == 1);
  REQUIRE(r.writer->flush().ok());
  CHECK(r.written().tensors == 2);
}

TEST_CASE("flight_recorder: an event larger than a piece is kept whole", "[engine]") {
  Recording r("2");
  const std::string text(format::kMaxStringBytes * 8, 'x');
  format::Diagnostic large;
  large.message = text;
  CHECK(r.recorder.keep(large) == nullptr);
  r.keep_step(1, 3);
  REQUIRE(r.recorder.write(*r.writer, "test").ok());
  const auto found = r.written();
  CHECK(found.launches == 3);
  REQUIRE(found.said.size() == 2);
  CHECK(found.said[1].size() == format::kMaxStringBytes);
}

TEST_CASE("flight_recorder: at the end it says what nothing asked for", "[engine]") {
  Recording r("2");
  for (uint32_t i = 0; i < 5; ++i) r.keep_step(i, 1);
  REQUIRE(r.recorder.finish(*r.writer).ok());
  REQUIRE(r.writer->close().ok());
  const auto found = r.written();
  CHECK(found.steps.empty());
  CHECK(found.said ==
        std::vector<std::string>{"10 events since the last trigger were not written"});
}

TEST_CASE("loss_watch: a spike is far above the losses before it, or above the limit", "[engine]") {
  LossWatch watch({.sigma = 6, .absolute = 100});
  for (int i = 0; i < 40; ++i) CHECK_FALSE(watch.is_spike(2 + 0.1 * (i % 5)));
  CHECK_FALSE(watch.is_spike(2.7));
  CHECK_FALSE(watch.is_spike(0.01));  // a fall is what everybody hopes for
  CHECK(watch.is_spike(5));
  CHECK(watch.is_spike(5));  // a spike is not learned from
  CHECK(watch.is_spike(101));
  CHECK(watch.is_spike(-101));
  CHECK_FALSE(watch.is_spike(std::numeric_limits<double>::quiet_NaN()));
}

TEST_CASE("loss_watch: the first losses have nothing to be held against", "[engine]") {
  LossWatch watch({});
  CHECK_FALSE(watch.is_spike(1));
  CHECK_FALSE(watch.is_spike(50));
  CHECK(watch.is_spike(1e7));
}

TEST_CASE("loss_watch: a loss that hardly moves is allowed to move a little", "[engine]") {
  LossWatch watch({});
  for (int i = 0; i < 40; ++i) CHECK_FALSE(watch.is_spike(1));
  CHECK_FALSE(watch.is_spike(1.05));
  CHECK(watch.is_spike(1.1));
}

TEST_CASE("flight_recorder: only a loss can be a spike", "[engine]") {
  Recording r("2,spike", FlightRecorder::kMaxBytes);
  format::TensorStats tensor;
  tensor.stats.mean = 1e9;
  tensor.place.phase = format::Phase::kForward;
  CHECK(r.recorder.keep(tensor) == nullptr);
  tensor.place.phase = format::Phase::kLoss;
  CHECK(std::string_view(r.recorder.keep(tensor)) == "spike");
}
