#include <fstream>

#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

constexpr const char* kSource = "1\nclass Gate: pass";
const std::vector<std::string> kStack = {"train.py:3 in forward", "/home/alice/train.py:9"};

/// Two steps with all that one would not send to a stranger.
std::string write_private(const std::string& path, float loss) {
  TraceBuilder trace(path);
  format::TraceMeta meta;
  meta.host = "alices-machine";
  meta.pid = 4711;
  meta.command_line = {"python", "/home/alice/train.py", "--client", "acme"};
  meta.facts = {{"path.cupti", "/home/alice/libcupti.so"},
                {"setting.CONVTRACE_OUTPUT", "acme.ctrace"},
                {"source.model.py", kSource},
                {"version.torch", "2.13.0"}};
  trace.meta(meta);
  for (uint32_t step = 0; step < 2; ++step) {
    trace.step(step)
        .alloc({.address = 16, .bytes = 64, .generation = 1, .stack = kStack})
        .told("h.0", "class", "model.Attention")
        .told("h.0", "call", "train.py:40")
        .told("h.0", "attributes", "cache='/home/alice/cache', heads=2")
        .enter("h.0")
        .stats({.scope = "h.0", .capture = format::Capture::kSnapshot, .values = {1.5F, 2}})
        .stats({.scope = "h.0", .slot = "loss", .values = {loss}})
        .finding({.scope = "h.0", .alloc_stack = kStack, .free_stack = kStack, .message = "why"})
        .diagnostic(format::Level::kInfo, "settings", "/home/alice/rules.toml: matched")
        .diagnostic(format::Level::kInfo, kSource, "");  // defines the text, as the observer does
  }
  trace.close();
  return path;
}

std::vector<tools::Json> records(const std::string& path) {
  const ProcessResult shown = convtrace({"show", "--json", path});
  CHECK(shown.exit_code == 0);
  return json_lines(shown.out);
}

}  // namespace

TEST_CASE("strip: what is private goes, what is compared stays", "[cli]") {
  const TempDir folder;
  const std::string in = write_private(folder / "in.ctrace", 3), out = folder / "out.ctrace";
  const std::string before = read_file(in);
  const ProcessResult result = convtrace({"strip", in, "-o", out});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("left out: raw values of 4 tensors, 6 stacks, 4 messages, 4 locations") !=
        std::string::npos);
  CHECK(read_file(in) == before);
  CHECK(convtrace({"verify", out}).exit_code == 0);

  std::string all = convtrace({"info", "--json", out}).out + convtrace({"findings", out}).out;
  for (const tools::Json& record : records(out)) all += record.dump();
  const auto stripped = reader::TraceReader::open(out);
  REQUIRE(stripped.ok());
  const format::Definitions& texts = stripped.value()->definitions();
  for (format::StringId id; (id = texts.next(id));) all += texts.text(id);
  for (const char* secret :
       {"alice", "acme", "Gate", "4711", "train.py", "samples\":[1.5", "snapshot"}) {
    CAPTURE(secret);
    CHECK(all.find(secret) == std::string::npos);
  }
  for (const char* kept : {"2.13.0", "h.0", "model.Attention", "stripped.from"}) {
    CAPTURE(kept);
    CHECK(all.find(kept) != std::string::npos);
  }

  const auto numbers = [](const std::string& path) {
    std::vector<std::string> found;
    for (const tools::Json& record : records(path))
      if (record["record"] == "stats")
        found.push_back(record["hash"].dump() + record["mean"].dump());
    return found;
  };
  CHECK(numbers(out).size() == 4);
  CHECK(numbers(out) == numbers(in));
}

TEST_CASE("strip --hashes: nothing but equal and unequal is left", "[cli]") {
  const TempDir folder;
  const std::string out = folder / "out.ctrace";
  REQUIRE(
      convtrace({"strip", write_private(folder / "in.ctrace", 3), "--hashes", "--json", "-o", out})
          .exit_code == 0);
  size_t tensors = 0;
  for (const tools::Json& record : records(out)) {
    if (record["record"] != "stats") continue;
    ++tensors;
    CHECK(record["capture"] == "hash");
    CHECK((!record.contains("mean") || record["mean"].is_null()));
  }
  CHECK(tensors == 4);
}

TEST_CASE("strip: the trace itself and what exists are left alone", "[cli]") {
  const TempDir folder;
  const std::string in = write_private(folder / "in.ctrace", 3), out = folder / "out.ctrace";
  CHECK(convtrace({"strip", in, "--overwrite", "-o", in}).exit_code == 2);
  std::ofstream(out) << "precious";
  CHECK(convtrace({"strip", in, "-o", out}).exit_code == 1);
  CHECK(read_file(out) == "precious");
  CHECK(convtrace({"strip", in, "--overwrite", "-o", out}).exit_code == 0);
  CHECK(convtrace({"strip", folder / "missing", "-o", folder / "x"}).exit_code == 1);
}

TEST_CASE("strip: two stripped runs differ where the whole ones did, and in nothing else",
          "[cli]") {
  const TempDir folder;
  const auto verdict = [&folder](const std::string& name, float loss) {
    const std::string in = write_private(folder / (name + "-a"), 3),
                      other = write_private(folder / (name + "-b"), loss);
    const std::string a = folder / (name + "-sa"), b = folder / (name + "-sb");
    REQUIRE(convtrace({"strip", in, "-o", a}).exit_code == 0);
    REQUIRE(convtrace({"strip", other, "-o", b}).exit_code == 0);
    return run_process({CONVTRACE_DIFF_PROGRAM, a, b});
  };
  const ProcessResult apart = verdict("apart", 4);
  CHECK(apart.exit_code == 1);
  CHECK(apart.out.find("step 0, forward, h.0") != std::string::npos);
  CHECK(apart.out.find("stripped") == std::string::npos);
  CHECK(verdict("same", 3).exit_code == 0);
}

TEST_CASE("strip: of a damaged trace what can be read, exit code 3", "[cli]") {
  const TempDir folder;
  const std::string in = write_private(folder / "in.ctrace", 3), out = folder / "out.ctrace";
  std::filesystem::resize_file(in, std::filesystem::file_size(in) - 100);
  CHECK(convtrace({"strip", in, "-o", out}).exit_code == 3);
  CHECK(convtrace({"verify", out}).exit_code == 0);
}

}  // namespace convtrace::test
