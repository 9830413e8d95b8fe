// `show --follow` and `check --live` beside a process that writes.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <limits>
#include <thread>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kSteps = 20, kBadStep = 4;

enum class End { kClosed, kKilled, kStays };

void write_steps(const std::string& path, End end) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  format::TraceMeta meta;
  meta.pid = static_cast<uint32_t>(getpid());
  meta.host = host.data();
  TraceBuilder trace(path);
  trace.meta(meta);
  for (uint32_t step = 0; step < kSteps; ++step) {
    const float value = step == kBadStep ? std::numeric_limits<float>::quiet_NaN() : 1;
    trace.step(step).stats({.scope = "layer" + std::to_string(step), .values = {value}}).flush();
    std::this_thread::sleep_for(milliseconds(15));
  }
  if (end == End::kClosed) trace.close();
  if (end == End::kKilled) kill(getpid(), SIGKILL);
  pause();
}

/// A process that writes while the test looks on.
class Writer {
 public:
  Writer(const std::string& path, End end) : process_(fork()) {
    if (process_ == 0) {
      write_steps(path, end);
      _exit(0);
    }
    while (!std::filesystem::exists(path) || std::filesystem::file_size(path) == 0)
      std::this_thread::sleep_for(milliseconds(1));
  }
  ~Writer() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

 private:
  pid_t process_;
};

/// `timeout` ends it by `signal` if it does not end by itself.
ProcessResult follow(const std::string& path, const char* signal, const char* seconds) {
  return run_process({"timeout", "--preserve-status", "--signal", signal, seconds,
                      CONVTRACE_PROGRAM, "show", "--follow", "--json", path});
}

void check_all_steps(const std::string& out) {
  const auto records = json_lines(out);
  REQUIRE(records.size() == 1 + 2 * kSteps);
  CHECK(records[0]["record"] == "meta");
  for (uint32_t step = 0; step < kSteps; ++step) {
    CHECK(records[1 + 2 * step]["record"] == "step");
    CHECK(records[2 + 2 * step]["scope"] == "layer" + std::to_string(step));
  }
}

}  // namespace

TEST_CASE("show --follow: shows every record once and ends when the trace is closed", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  const Writer writer(path, End::kClosed);
  const ProcessResult result = follow(path, "KILL", "20");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  check_all_steps(result.out);
}

TEST_CASE("show --follow: ends with 3 when the writing process is gone", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  const Writer writer(path, End::kKilled);
  const ProcessResult result = follow(path, "KILL", "20");
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("CT-2102 ") != std::string::npos);
  check_all_steps(result.out);
}

TEST_CASE("show --follow: Ctrl-C ends it with 0 after whole records", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  const Writer writer(path, End::kStays);
  const ProcessResult result = follow(path, "INT", "1.5");
  CHECK(result.exit_code == 0);
  CHECK(result.signal == 0);
  check_all_steps(result.out);
}

/// A signal ends it after 1.5 s if it has not ended by itself. Not by `timeout`, which sends a
/// SIGCONT behind it: that cancels the SIGSTOP by which a leak sanitizer stops an ending process.
ProcessResult check_live(const std::string& path) {
  return run_process({"sh", "-c", "\"$0\" check --live \"$1\" & sleep 1.5; kill $! 2>&-; wait $!",
                      CONVTRACE_PROGRAM, path});
}

/// The finding stands before the report, and again in it.
void check_told_twice(const std::string& out) {
  const std::string line = "error nan  step 4, forward, layer4, output:0";
  const size_t first = out.find(line + ": ");
  REQUIRE(first != std::string::npos);
  CHECK(out.find("1 error", first) != std::string::npos);
  CHECK(out.find(line + "\n", first) != std::string::npos);
}

TEST_CASE("check --live: tells a finding once it is made, and reports when the trace is closed",
          "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  const Writer writer(path, End::kClosed);
  const ProcessResult result = check_live(path);
  CHECK(result.exit_code == 4);
  check_told_twice(result.out);
}

TEST_CASE("check --live: reports when the writing process is gone, and on Ctrl-C", "[cli]") {
  for (const End end : {End::kKilled, End::kStays}) {
    const TempDir folder;
    const std::string path = folder / "a.ctrace";
    const Writer writer(path, end);
    const ProcessResult result = check_live(path);
    CHECK(result.exit_code == 4);
    CHECK(result.signal == 0);
    check_told_twice(result.out);
    CHECK(result.out.find("incomplete") != std::string::npos);
  }
}

TEST_CASE("show --follow: of a complete trace is show", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).step(1).stats({.values = {1}}).close();
  for (const char* json : {"--json", "--records=step,stats"}) {
    const ProcessResult followed = convtrace({"show", "--follow", json, path});
    CHECK(followed.exit_code == 0);
    CHECK(followed.out == convtrace({"show", json, path}).out);
  }
}

}  // namespace convtrace::test
