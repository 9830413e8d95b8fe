#include "tests/support/trace_builder.h"

#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/next_event.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

using namespace format;
using reader::TraceReader;
using reader::TraceState;
using test::next_of;
using test::TempDir;
using test::TraceBuilder;

std::unique_ptr<TraceReader> open(const std::string& path) {
  auto opened = TraceReader::open(path);
  REQUIRE(opened.ok());
  return std::move(opened).value();
}

TEST_CASE("trace builder: what is said in the test is what the file holds", "[support]") {
  const TempDir dir;
  TraceBuilder(dir / "a.ctrace")
      .rank(2, 4)
      .fact("version.torch", "2.13.0")
      .step(7)
      .stats({.scope = "h.0.mlp", .slot = "output:0", .values = {1.0f, -3.0f}})
      .finding({.level = Level::kError, .op = "demo::gelu", .free_stack = {"f", "main"}})
      .close();

  const auto reader = open(dir / "a.ctrace");
  CHECK(reader->meta().rank == 2);
  CHECK(reader->meta().world_size == 4);
  REQUIRE(reader->meta().facts.size() == 1);
  CHECK(reader->meta().facts[0].second == "2.13.0");
  const Definitions& defs = reader->definitions();
  CHECK(std::get<Step>(next_of(*reader)).index == 7);
  const auto& stats = std::get<TensorStats>(next_of(*reader));
  CHECK(stats.header.step == 7);
  CHECK(defs.text(stats.place.scope) == "h.0.mlp");
  CHECK(stats.stats.min.as_f64() == -3.0);
  CHECK(stats.stats.mean == -1.0);
  CHECK(stats.stats.std == 2.0);
  CHECK(stats.bytes == 8);
  REQUIRE(stats.shape.size() == 1);
  CHECK(stats.shape[0] == 2);
  const auto& finding = std::get<Finding>(next_of(*reader));
  CHECK(defs.text(finding.op) == "demo::gelu");
  REQUIRE(defs.stack(finding.free_stack).size() == 2);
  CHECK(defs.text(defs.stack(finding.free_stack)[1]) == "main");
  CHECK(reader->next() == nullptr);
  CHECK(reader->state() == TraceState::kComplete);
}

TEST_CASE("trace builder: an unclosed trace holds everything said before", "[support]") {
  const TempDir dir;
  TraceBuilder(dir / "a.ctrace").step(0).step(1).leave_unclosed();
  const auto reader = open(dir / "a.ctrace");
  (void)next_of(*reader);
  CHECK(std::get<Step>(next_of(*reader)).index == 1);
  CHECK(reader->next() == nullptr);
  CHECK(reader->state() == TraceState::kUnclosed);
}

}  // namespace
}  // namespace convtrace
