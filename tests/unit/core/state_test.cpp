#include "interposer/core/runtime/state.h"

#include <stdexcept>

#include "format/base/log.h"
#include "interposer/core/runtime/guarded.h"
#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::engine;

TEST_CASE("state: only one caller arms, and only once", "[engine][state]") {
  State state;
  CHECK(state.begin_arming());
  CHECK_FALSE(state.begin_arming());
  state.activate();
  CHECK(state.active());
  CHECK_FALSE(state.begin_arming());
}

TEST_CASE("state: draining follows active and nothing else", "[engine][state]") {
  State state;
  CHECK_FALSE(state.begin_draining());
  REQUIRE(state.begin_arming());
  state.activate();
  CHECK(state.begin_draining());
  CHECK_FALSE(state.begin_draining());
  CHECK_FALSE(state.active());
}

TEST_CASE("state: disabled keeps its first reason and is final", "[engine][state]") {
  State state;
  REQUIRE(state.begin_arming());
  state.disable("first");
  state.disable("second");
  state.activate();
  CHECK(state.get() == EngineState::kDisabled);
  CHECK(std::string(state.reason()) == "first");
}

TEST_CASE("state: the fifth failure in a row of one kind disables, a success starts again",
          "[engine][state]") {
  configure_log(format::Level::kError, 0);
  State state;
  REQUIRE(state.begin_arming());
  state.activate();
  for (int i = 0; i < 4; ++i) state.failed(FailureKind::kStatistics, "test");
  state.failed(FailureKind::kException, "test");
  state.succeeded(FailureKind::kStatistics);
  for (int i = 0; i < 4; ++i) state.failed(FailureKind::kStatistics, "test");
  CHECK(state.active());
  state.failed(FailureKind::kStatistics, "test");
  CHECK(state.get() == EngineState::kDisabled);
  configure_log(format::Level::kWarning, 0);
}

TEST_CASE("guarded: nothing runs unless admitted, exceptions stay inside, errno is the host's",
          "[engine][state]") {
  const auto always = [](const State&) { return true; };
  const auto never = [](const State&) { return false; };
  CHECK(guarded_if("test", 7, never, [] { return 1; }) == 7);
  errno = 42;
  const int result = guarded_if("test", 7, always, []() -> int {
    errno = 1;
    throw std::runtime_error("ours");
  });
  CHECK(result == 7);
  CHECK(errno == 42);
  CHECK(guarded_if("test", 7, always, [] { return 1; }) == 1);
}

TEST_CASE("guarded: an entry from inside convtrace does nothing", "[engine][state]") {
  const auto always = [](const State&) { return true; };
  const int outer = guarded_if(
      "test", 0, always, [&] { return guarded_if("test", 5, always, [] { return 1; }) + 10; });
  CHECK(outer == 15);
  CHECK_FALSE(RecursionGuard::inside());
}
