#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tools/diff/step_stream.h"

namespace {

using namespace convtrace;

struct Written {
  uint32_t step;
  uint64_t t_ns;
  const char* slot;
};

/// Steps of a trace with these values, each as its slots in order: "0:ab" for a and b in step 0.
std::vector<std::string> steps_of(const std::vector<Written>& values, uint64_t* late = nullptr) {
  const test::TempDir dir;
  test::TraceBuilder trace(dir / "a.ctrace");
  for (const Written& value : values) {
    format::TensorStats event;
    event.header.step = value.step;
    event.header.t_ns = value.t_ns;
    event.slot = trace.definitions().intern(value.slot);
    trace.event(event);
  }
  trace.close();
  auto reader = reader::TraceReader::open(dir / "a.ctrace");
  REQUIRE(reader.ok());
  format::Definitions names;
  diff::StepStream stream(std::move(reader).value(), names);
  std::vector<std::string> steps;
  for (const diff::StepRecords* step = stream.peek(); step != nullptr; step = stream.peek()) {
    steps.push_back(std::to_string(step->step) + ':');
    for (const diff::ValueRecord& r : step->values) steps.back() += names.text(r.key.slot);
    stream.pop();
  }
  if (late != nullptr) *late = stream.late_values();
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

TEST_CASE("step_stream: values of an unknown step come last", "[diff][stream]") {
  CHECK(steps_of({{format::kNoStep, 1, "u"}, {0, 2, "a"}, {1, 3, "b"}}) ==
        Steps{"0:a", "1:b", std::to_string(format::kNoStep) + ":u"});
}

TEST_CASE("step_stream: steps that were not recorded leave a gap, not empty steps",
          "[diff][stream]") {
  CHECK(steps_of({{0, 1, "a"}, {50, 2, "b"}, {100, 3, "c"}}) == Steps{"0:a", "50:b", "100:c"});
}
