// The engine in processes that fork: children are not traced, or on their own, and a fork finds no
// thread of convtrace in a process that has no others.

#include "tests/integration/core/place.h"

using namespace convtrace;
using namespace convtrace::test;

TEST_CASE("engine: the fork child of a traced process is off, and says so once",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("fork-after");
  CHECK(result.exit_code == 0);
  CHECK(lines(result.err) == 1);
  CHECK(result.err.find("forked") != std::string::npos);
  REQUIRE(place.files().size() == 1);
  Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.records["stats"] == 3);
}

TEST_CASE("engine: a fork child made before anything began is traced on its own",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("fork-before");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  REQUIRE(place.files().size() == 2);
  const Contents a = read(place.files()[0]), b = read(place.files()[1]);
  CHECK(a.state == TraceState::kComplete);
  CHECK(b.state == TraceState::kComplete);
  CHECK(a.records.at("stats") == 3);
  CHECK(b.records.at("stats") == 3);
  CHECK(a.meta.pid != b.meta.pid);
}

TEST_CASE("engine: behind each of 300 forks a process has one thread, and its trace all events",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("fork-storm");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  REQUIRE(place.files().size() == 1);
  Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.records["stats"] == 150);
  CHECK(trace.lost == 0);
}

TEST_CASE("engine: forks while other threads train lose nothing", "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("fork-threads");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  REQUIRE(place.files().size() == 1);
  Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.records["stats"] == 3 * 200);
  CHECK(trace.lost == 0);
}

TEST_CASE("engine: forks in exit handlers, before and behind that of tracing, leave it whole",
          "[engine][integration]") {
  const Place place;
  const ProcessResult result = place.run("fork-at-exit");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  REQUIRE(place.files().size() == 1);
  Contents trace = read(place.files()[0]);
  CHECK(trace.state == TraceState::kComplete);
  CHECK(trace.records["stats"] == 3);
}
