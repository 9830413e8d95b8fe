#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

/// A killed process's trace of four chunks.
std::string write_unclosed(const std::string& path) {
  TraceBuilder trace(path);
  trace.fact("version.torch", "2.13.0");
  for (uint32_t step = 0; step < 4; ++step) {
    trace.step(step).stats({.values = {1, 2, 3}}).launch({}).flush();
  }
  trace.leave_unclosed();
  return path;
}

std::string state_of(const std::string& path) {
  return tools::Json::parse(convtrace({"info", "--json", path}).out)["state"];
}

}  // namespace

TEST_CASE("recover: an unclosed trace becomes a complete one, exit code 3, the input untouched",
          "[cli]") {
  const TempDir folder;
  const std::string in = write_unclosed(folder / "in.ctrace"), out = folder / "out.ctrace";
  const std::string before = read_file(in);
  const ProcessResult result = convtrace({"recover", in, "-o", out});
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("CT-2102 ") != std::string::npos);
  CHECK(result.out.find("12 events in 4 chunks") != std::string::npos);
  CHECK(read_file(in) == before);
  CHECK(state_of(out) == "complete");
  CHECK(convtrace({"verify", out}).exit_code == 0);
  CHECK(convtrace({"show", "--json", "--records", "stats", out}).out ==
        convtrace({"show", "--json", "--records", "stats", in}).out);
  CHECK(convtrace({"recover", out, "-o", folder / "again.ctrace"}).exit_code == 0);
}

TEST_CASE("recover --json: what was lost, by reason", "[cli]") {
  const TempDir folder;
  const std::string in = write_unclosed(folder / "in.ctrace"), out = folder / "out.ctrace";
  std::string bytes = read_file(in);
  for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 64; ++i) bytes[i] ^= 0x55;
  std::ofstream(in, std::ios::binary) << bytes;
  const ProcessResult result = convtrace({"recover", "--json", in, "-o", out});
  CHECK(result.exit_code == 3);
  const tools::Json report = tools::Json::parse(result.out);
  CHECK(report["output"] == out);
  CHECK(report["state"] == "damaged");
  CHECK(report["lost"]["records"] > 0);
  CHECK(report["lost"]["damaged_bytes"] > 0);
  CHECK(report["chunks"].get<int>() + report["lost"]["records"].get<int>() >= 4);
  CHECK(report["events"].get<int>() + report["lost"]["events"].get<int>() +
            report["lost"]["events_without_definition"].get<int>() ==
        12);
  CHECK_FALSE(report["problems"].empty());
  CHECK(state_of(out) == "complete");
}

TEST_CASE("recover: what exists is replaced only with --overwrite, and never by half", "[cli]") {
  const TempDir folder;
  const std::string in = write_unclosed(folder / "in.ctrace"), out = folder / "out.ctrace";
  std::ofstream(out) << "precious";
  const ProcessResult refused = convtrace({"recover", in, "-o", out});
  CHECK(refused.exit_code == 1);
  CHECK(refused.err.find("CT-2104 ") != std::string::npos);
  CHECK(read_file(out) == "precious");
  const ProcessResult full = run_process(
      {"sh", "-c",
       "ulimit -f 1; exec " CONVTRACE_PROGRAM " recover --overwrite " + in + " -o " + out});
  CHECK(full.exit_code == 1);
  CHECK(full.err.find("CT-2106 ") != std::string::npos);
  CHECK(read_file(out) == "precious");
  CHECK(convtrace({"recover", "--overwrite", in, "-o", out}).exit_code == 3);
  CHECK(state_of(out) == "complete");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("recover: the damaged trace itself is never the output", "[cli]") {
  const TempDir folder;
  const std::string in = write_unclosed(folder / "in.ctrace");
  const std::string before = read_file(in);
  std::filesystem::create_symlink(in, folder / "link");
  for (const std::string& out : {in, folder / "link"}) {
    CHECK(convtrace({"recover", in, "-o", out}).exit_code == 2);
    CHECK(convtrace({"recover", "--overwrite", in, "-o", out}).exit_code == 2);
  }
  CHECK(read_file(in) == before);
}

TEST_CASE("recover --overwrite: the new file takes no name that the damaged trace or another has",
          "[cli]") {
  const TempDir folder;
  const std::string in = write_unclosed(folder / "run.ctrace.partial"), out = folder / "run.ctrace";
  const std::string before = read_file(in);
  CHECK(convtrace({"recover", "--overwrite", in, "-o", out}).exit_code == 3);
  CHECK(state_of(out) == "complete");
  CHECK(read_file(in) == before);

  // The shell's process id is the program's.
  const std::string recovered = read_file(out);
  const ProcessResult taken =
      run_process({"sh", "-c",
                   "in=" + out + ".$$.partial; cp " + in +
                       " $in; exec " CONVTRACE_PROGRAM " recover --overwrite $in -o " + out});
  CHECK(taken.exit_code == 1);
  CHECK(std::count(taken.err.begin(), taken.err.end(), '\n') == 1);
  CHECK(read_file(out) == recovered);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("recover: a failure is one line and leaves no file", "[cli]") {
  const TempDir folder;
  const std::string in = write_unclosed(folder / "in.ctrace"), out = folder / "out.ctrace";
  const auto fails = [&](const ProcessResult& result) {
    CHECK(result.exit_code == 1);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK_FALSE(std::filesystem::exists(out));
  };
  fails(convtrace({"recover", folder / "missing", "-o", out}));
  fails(convtrace({"recover", in, "-o", folder / "no/such/folder"}));
  fails(run_process(
      {"sh", "-c", "ulimit -f 1; exec " CONVTRACE_PROGRAM " recover " + in + " -o " + out}));
  CHECK(convtrace({"recover", in}).exit_code == 2);
}

}  // namespace convtrace::test
