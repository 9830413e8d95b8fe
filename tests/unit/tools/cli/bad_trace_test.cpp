#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

const std::vector<std::string> kCommands[] = {
    {"info"}, {"info", "--json"}, {"show"}, {"show", "--json"}, {"findings"}};

void write_trace(const std::string& path) {
  TraceBuilder trace(path);
  for (uint32_t step = 0; step < 4; ++step) {
    trace.step(step).stats({.values = {1, 2, 3}}).launch({}).flush();
  }
  trace.close();
}

ProcessResult run_on(std::vector<std::string> command, const std::string& path) {
  command.push_back(path);
  return convtrace(std::move(command));
}

}  // namespace

TEST_CASE("bad trace: what is no trace is one line and exit code 1", "[cli]") {
  const TempDir folder;
  std::ofstream(folder / "text") << "not a trace, but long enough to hold a header "
                                    "and then some, and some more, and more still\n";
  std::ofstream(folder / "empty");
  std::filesystem::create_directory(folder / "folder");
  for (const auto& command : kCommands) {
    for (const char* name : {"text", "empty", "folder", "missing"}) {
      CAPTURE(command, name);
      const ProcessResult result = run_on(command, folder / name);
      CHECK(result.exit_code == 1);
      CHECK(result.out.empty());
      CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
      CHECK(result.err.starts_with("convtrace: CT-2101 "));
      CHECK(result.err.find(name) != std::string::npos);
      CHECK((result.err.find(": empty: ") != std::string::npos) == (name == std::string("empty")));
    }
  }
}

TEST_CASE("bad trace: an unclosed trace is shown, with exit code 3", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).step(1).stats({.values = {1}}).flush().leave_unclosed();
  const ProcessResult shown = convtrace({"show", "--json", "--records", "stats", path});
  CHECK(shown.exit_code == 3);
  CHECK(json_lines(shown.out).size() == 1);
  const ProcessResult info = convtrace({"info", "--json", path});
  CHECK(info.exit_code == 3);
  CHECK(tools::Json::parse(info.out)["state"] == "unclosed");
}

TEST_CASE("bad trace: damage is counted, the rest is shown, exit code 3", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  write_trace(path);
  std::string bytes = read_file(path);
  // Somewhere inside the second quarter: a chunk, not the file header and not the footer.
  for (size_t i = bytes.size() / 4; i < bytes.size() / 4 + 64; ++i) bytes[i] ^= 0x55;
  std::ofstream(path, std::ios::binary) << bytes;
  for (const auto& command : kCommands) {
    CAPTURE(command);
    const ProcessResult result = run_on(command, path);
    CHECK(result.exit_code == 3);
    CHECK(result.err.find("CT-2103 ") != std::string::npos);
  }
  const auto info = tools::Json::parse(convtrace({"info", "--json", path}).out);
  CHECK(info["state"] == "damaged");
  CHECK_FALSE(info["lost"].empty());
}

TEST_CASE("bad trace: cut at any length, every command ends by itself with 1 or 3", "[cli]") {
  const TempDir folder;
  const std::string whole = folder / "whole.ctrace", cut = folder / "cut.ctrace";
  write_trace(whole);
  const std::string bytes = read_file(whole);
  for (size_t length = 0; length < bytes.size(); length += 61) {
    std::ofstream(cut, std::ios::binary | std::ios::trunc) << bytes.substr(0, length);
    CAPTURE(length);
    const ProcessResult result = convtrace({"show", "--json", cut});
    CHECK(result.signal == 0);
    CHECK((result.exit_code == 1 || result.exit_code == 3));
  }
}

}  // namespace convtrace::test
