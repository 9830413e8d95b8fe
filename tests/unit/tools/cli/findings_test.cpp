#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

using format::FindingKind;
using format::Level;

const FindingSpec kError{.kind = FindingKind::kFreedUnderOutput,
                         .level = Level::kError,
                         .scope = "h.0.mlp",
                         .op = "demo::gelu",
                         .slot = "output:0",
                         .other = "input:0",
                         .bytes = 64,
                         .alloc_stack = {"allocate (a.py:1)"},
                         .launch_stack = {"launch (b.py:2)"},
                         .free_stack = {"free (c.py:3)"},
                         .message = "output 0 lies over memory that was freed"};

}  // namespace

TEST_CASE("findings: nothing found is not the same as not looked", "[cli]") {
  const TempDir folder;
  TraceBuilder(folder / "watched.ctrace").step(0).close();
  CHECK(convtrace({"findings", folder / "watched.ctrace"}).err.empty());
  TraceBuilder(folder / "not.ctrace")
      .step(3)
      .diagnostic(Level::kInfo, format::kCpuMemorySite, "memory is not watched: why")
      .close();
  const ProcessResult result = convtrace({"findings", folder / "not.ctrace"});
  CHECK(result.out.empty());
  CHECK(result.exit_code == 0);
  CHECK(result.err.find("from step 3 on memory is not watched: why; what uses it after its free is "
                        "not found") != std::string::npos);
}

TEST_CASE("findings: the exit code says whether an unsuppressed error was found", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  FindingSpec suppressed = kError, warning = kError;
  suppressed.suppressed = true;
  warning.level = Level::kWarning;
  struct Case {
    std::vector<FindingSpec> findings;
    int exit_code;
  };
  const Case cases[] = {{{}, 0},
                        {{warning}, 0},
                        {{suppressed}, 0},
                        {{warning, kError}, 4},
                        {{suppressed, kError, warning}, 4}};
  for (const Case& c : cases) {
    std::filesystem::remove(path);
    TraceBuilder trace(path);
    for (const FindingSpec& finding : c.findings) trace.finding(finding);
    trace.close();
    CHECK(convtrace({"findings", path}).exit_code == c.exit_code);
    const ProcessResult json = convtrace({"findings", "--json", path});
    CHECK(json.exit_code == c.exit_code);
    CHECK(json_lines(json.out).size() == c.findings.size());
    const bool warns = std::ranges::any_of(
        c.findings, [](const FindingSpec& f) { return f.level == Level::kWarning; });
    const int strict = warns ? 4 : c.exit_code;
    CHECK(convtrace({"findings", "--strict", path}).exit_code == strict);
    CHECK(convtrace({"findings", "--strict", "--json", path}).exit_code == strict);
  }
}

TEST_CASE("findings: the last line counts errors and warnings", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  FindingSpec suppressed = kError, warning = kError;
  suppressed.suppressed = true;
  warning.level = Level::kWarning;
  TraceBuilder(path).finding(warning).finding(suppressed).finding(warning).close();
  const std::string counts = "\n\nfound: 0 errors, 2 warnings, 1 suppressed by a rule";
  CHECK(convtrace({"findings", path})
            .out.ends_with(counts + " (--strict: exit code 4 for a warning, too)\n"));
  CHECK(convtrace({"findings", "--strict", path}).out.ends_with(counts + "\n"));
  CHECK(convtrace({"info", path}).out.find("2 warnings: convtrace findings " + path + "\n") !=
        std::string::npos);
}

TEST_CASE("findings: an unclosed trace is 3 whatever it holds", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).finding(kError).leave_unclosed();
  const ProcessResult result = convtrace({"findings", "--json", path});
  CHECK(result.exit_code == 3);
  CHECK(json_lines(result.out).size() == 1);
  CHECK(result.err.find("CT-2102 ") != std::string::npos);
}

TEST_CASE("findings: a paragraph says what, where, and three stacks", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).step(5).finding(kError).close();
  const ProcessResult result = convtrace({"findings", path});
  for (const char* text :
       {"error: freed-under-output in step 5, forward h.0.mlp, op demo::gelu",
        "output 0 lies over memory that was freed", "output:0 and input:0 share 64 bytes",
        "allocated:\n    allocate (a.py:1)", "called:\n    launch (b.py:2)",
        "freed:\n    free (c.py:3)"}) {
    CAPTURE(text);
    CHECK(result.out.find(text) != std::string::npos);
  }
}

TEST_CASE("findings: a run of frames of the interpreter is one line, but in JSON", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  FindingSpec finding = kError;
  const std::string eval = "_PyEval_Vector+0x5c (libpython3.11.so.1.0+0x250a40)";
  finding.alloc_stack = {"mul (libtorch_cpu.so+0x1)",
                         eval,
                         "python3.11+0x12",
                         eval,
                         "run (libtorch_python.so+0x2)",
                         eval,
                         eval};
  TraceBuilder(path).finding(finding).close();
  CHECK_THAT(convtrace({"findings", path}).out,
             Catch::Contains("allocated:\n    mul (libtorch_cpu.so+0x1)\n"
                             "    [3 frames of the Python interpreter]\n"
                             "    run (libtorch_python.so+0x2)\n    " +
                             eval + "\n    " + eval + "\n  called:"));
  const auto json = json_lines(convtrace({"findings", "--json", path}).out);
  CHECK(json.at(0)["stacks"]["alloc"] == tools::Json(finding.alloc_stack));
}

TEST_CASE("findings: a stack that an error lacks is said with how to get it", "[cli]") {
  const TempDir folder;
  FindingSpec finding = kError;
  finding.alloc_stack = finding.launch_stack = finding.free_stack = {};
  const bool error = GENERATE(true, false);
  if (!error) finding.level = format::Level::kWarning;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).finding(finding).close();
  const ProcessResult result = convtrace({"findings", path});
  const std::string lacking = "freed: no stack recorded (CONVTRACE_STACKS=all";
  CHECK((result.out.find(lacking) != std::string::npos) == error);
}

TEST_CASE("findings: a run that took all stacks is not told to take them", "[cli]") {
  const TempDir folder;
  FindingSpec finding = kError;
  finding.free_stack = {};
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).fact("setting.CONVTRACE_STACKS", "all").finding(finding).close();
  const std::string text = convtrace({"findings", path}).out;
  CHECK(text.find("freed: no stack recorded\n") != std::string::npos);
  CHECK(text.find("CONVTRACE_STACKS") == std::string::npos);
}

TEST_CASE("findings: who reads a stale value shares nothing with who made it", "[cli]") {
  const TempDir folder;
  FindingSpec finding = kError;
  finding.kind = format::FindingKind::kStaleRead;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).finding(finding).close();
  const ProcessResult result = convtrace({"findings", path});
  CHECK(result.out.find("share") == std::string::npos);
  CHECK(result.out.find("read:\n    launch (b.py:2)") != std::string::npos);
}

TEST_CASE("findings: what is about the same memory is one story", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  FindingSpec freed = kError, stale = kError, other = kError;
  freed.value = stale.value = {.storage = 7};
  stale.kind = FindingKind::kStaleRead;
  stale.scope = "h.0.mlp.norm";
  stale.slot = "input:0";
  stale.op = "";
  other.op = "demo::other";
  TraceBuilder(path)
      .step(5)
      .finding(stale)
      .finding(freed)
      .finding(other)
      .step(6)
      .finding(freed)
      .close();
  const std::string text = convtrace({"findings", path}).out;
  CHECK(text.starts_with("error: freed-under-output in step 5, forward h.0.mlp, op demo::gelu\n"));
  CHECK_THAT(text, Catch::Contains(
                       "  of the same memory or by the same code:\n"
                       "    stale-read (error) in step 5, forward h.0.mlp.norm\n"
                       "    freed-under-output (error) in step 6, forward h.0.mlp, op demo::gelu\n"
                       "\nerror: freed-under-output in step 5, forward h.0.mlp, op demo::other\n"));
  const auto json = json_lines(convtrace({"findings", "--json", path}).out);
  REQUIRE(json.size() == 4);
  // In the order of the text: what explains the others is first.
  CHECK(json[0]["kind"] == "freed-under-output");
  CHECK(json[1]["kind"] == "stale-read");
  CHECK(json[2]["step"] == 6);
  CHECK(json[3]["op"] == "demo::other");
  for (size_t i = 0; i < 4; ++i) CHECK(json[i]["story"] == (i < 3 ? 0 : 1));
}

}  // namespace convtrace::test
