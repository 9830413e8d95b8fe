#include <cmath>
#include <limits>
#include <set>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

using tools::Json;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// One of each kind of record.
void write_all_kinds(const std::string& path) {
  format::Op one_tensor;
  one_tensor.moment = format::OpMoment::kInput;
  TraceBuilder trace(path);
  trace.rank(3, 8)
      .step(7)
      .launch({.kernel = "_Z3addPf",
               .family = "add",
               .scope = "h.0",
               .grid = {4, 2, 1},
               .block = {128, 1, 1},
               .stream = 5,
               .device = 1,
               .operands = {{.param = 2,
                             .word = 8,
                             .confidence = format::Confidence::kWordBase,
                             .address = 4096,
                             .generation = 9,
                             .offset = 16}}})
      .stats({.scope = "",
              .slot = "loss",
              .phase = format::Phase::kLoss,
              .call = 2,
              .op = "demo::gelu",
              .value = {.storage = 1, .offset = 2, .generation = 3, .version = 4},
              .values = {1, -2, kNan, 0}})
      .alloc({.address = 4096, .bytes = 512, .generation = 9, .stack = {"inner", "outer"}})
      .free({.address = 4096, .bytes = 512, .generation = 9})
      .copy({.header = {},
             .kind = format::Copy::Kind::kSet,
             .destination = 1,
             .source = 2,
             .bytes = 3,
             .stream = 0})
      .enter("h.0")
      .finding({.kind = format::FindingKind::kFreedUnderOutput,
                .level = format::Level::kError,
                .scope = "h.0.mlp",
                .op = "demo::gelu",
                .slot = "output:0",
                .other = "input:0",
                .bytes = 64,
                .alloc_stack = {"a"},
                .launch_stack = {"l1", "l2"},
                .message = "output 0 lies over freed memory"})
      .diagnostic(format::Level::kInfo, "cupti", "not loaded")
      .loss(format::LossReason::kQueueFull, 12)
      .cost(1, 2, 3)
      .told("h.0", "attributes", "p=0.1")
      .event(format::Sync{.header = {},
                          .kind = format::SyncKind::kStreamWait,
                          .device = 1,
                          .stream = 7,
                          .event = 9})
      .event(one_tensor)
      .close();
}

std::vector<Json> show(const std::string& path, const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments{"show", "--json", path};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const ProcessResult result = convtrace(arguments);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return json_lines(result.out);
}

Json only(const std::vector<Json>& records, std::string_view kind) {
  for (const Json& record : records) {
    if (record["record"] == kind) return record;
  }
  FAIL("no record of kind " << kind);
  return {};
}

void check_keys(const Json& record, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    CAPTURE(record["record"], key);
    CHECK(record.contains(key));
  }
}

}  // namespace

TEST_CASE("show --json: every record has the common keys, every kind its own", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  write_all_kinds(path);
  const std::vector<Json> records = show(path);
  std::set<std::string> kinds;
  for (const Json& record : records) {
    check_keys(record, {"record", "seq", "t_ns", "rank", "step"});
    CHECK(record["rank"] == 3);
    kinds.insert(record["record"]);
  }
  CHECK(kinds == std::set<std::string>{"meta", "launch", "stats", "alloc", "free", "copy", "scope",
                                       "step", "finding", "diagnostic", "loss", "cost", "sync",
                                       "op", "fact"});
  CHECK(records[0]["record"] == "meta");
  check_keys(only(records, "launch"), {"kernel", "family", "grid", "block", "stream", "sampled",
                                       "why", "operands", "phase", "scope", "call"});
  check_keys(only(records, "stats"),
             {"phase",     "scope",   "call",     "slot",      "op",           "kernel",   "device",
              "dtype",     "shape",   "extent",   "value",     "count",        "finite",   "nan",
              "pos_inf",   "neg_inf", "pos_zero", "neg_zero",  "positive",     "negative", "min",
              "subnormal", "max",     "amax",     "saturated", "amin_nonzero", "sum",      "l1",
              "l2",        "mean",    "std",      "hash",      "samples"});
  check_keys(only(records, "alloc"), {"address", "bytes", "generation", "source", "stream"});
  check_keys(only(records, "free"), {"address", "bytes", "generation", "source", "stream"});
  check_keys(only(records, "finding"), {"kind", "level", "phase", "scope", "op", "kernel", "slot",
                                        "other", "bytes", "message", "stacks", "suppressed"});
  CHECK(only(records, "fact")["scope"] == "h.0");
  CHECK(only(records, "fact")["name"] == "attributes");
  CHECK(only(records, "fact")["value"] == "p=0.1");
  check_keys(only(records, "sync"), {"kind", "device", "stream", "event", "flags"});
  check_keys(only(records, "op"), {"moment", "phase", "scope", "call", "op", "slot", "device",
                                   "address", "bytes", "value", "storage_bytes", "stack"});
}

TEST_CASE("show --json: a launch", "[cli]") {
  const TempDir folder;
  write_all_kinds(folder / "a.ctrace");
  const Json launch = only(show(folder / "a.ctrace"), "launch");
  CHECK(launch["step"] == 7);
  CHECK(launch["kernel"] == "_Z3addPf");
  CHECK(launch["family"] == "add");
  CHECK(launch["grid"] == Json{4, 2, 1});
  CHECK(launch["block"] == Json{128, 1, 1});
  CHECK(launch["device"] == "cuda:1");
  CHECK(launch["sampled"] == false);
  CHECK(launch["why"] == "no rule asks for it");
  CHECK(launch["operands"] == Json::parse(R"([{"param": 2, "word": 8, "offset": 16,
      "address": 4096, "generation": 9, "confidence": "word-base"}])"));
}

TEST_CASE("show --json: statistics", "[cli]") {
  const TempDir folder;
  write_all_kinds(folder / "a.ctrace");
  const Json stats = only(show(folder / "a.ctrace"), "stats");
  CHECK(stats["phase"] == "loss");
  CHECK(stats["scope"] == "");
  CHECK(stats["call"] == 2);
  CHECK(stats["slot"] == "loss");
  CHECK(stats["op"] == "demo::gelu");
  CHECK(stats["kernel"].is_null());
  CHECK(stats["device"] == "cpu");
  CHECK(stats["dtype"] == "f32");
  CHECK(stats["shape"] == Json::array({4}));
  CHECK(stats["extent"] == "tensor");
  CHECK(stats["value"] ==
        Json::parse(R"({"storage": 1, "offset": 2, "generation": 3, "version": 4})"));
  CHECK(stats["count"] == 4);
  CHECK(stats["nan"] == 1);
  CHECK(stats["min"] == -2.0);
  CHECK(stats["sum"] == -1.0);
  CHECK(stats["samples"] == Json::parse(R"([1.0, -2.0, "nan", 0.0])"));
  const std::string hash = stats["hash"];
  CHECK(hash.size() == 18);
  CHECK(hash.starts_with("0x"));
}

TEST_CASE("show --json: a hash-only record has hash and count alone", "[cli]") {
  const TempDir folder;
  TraceBuilder(folder / "a.ctrace")
      .stats({.capture = format::Capture::kHash, .values = {1, 2}})
      .close();
  const Json stats = only(show(folder / "a.ctrace"), "stats");
  CHECK(stats["count"] == 2);
  CHECK(stats.contains("hash"));
  for (const char* key : {"finite", "nan", "min", "sum", "mean", "std", "samples"}) {
    CAPTURE(key);
    CHECK_FALSE(stats.contains(key));
  }
}

TEST_CASE("show --json: integers stay exact, 128-bit ones are text", "[cli]") {
  const TempDir folder;
  format::Stats numbers;
  numbers.count = numbers.finite = 2;
  numbers.min = format::Scalar::i64(std::numeric_limits<int64_t>::min());
  numbers.amax = format::Scalar::u64(uint64_t{1} << 63);
  numbers.sum = {.lo = 0, .hi = ~uint64_t{0}};
  const int64_t raw[] = {9007199254740993, -1};
  {
    TraceBuilder trace(folder / "a.ctrace");
    format::TensorStats event;
    event.slot = trace.definitions().intern("output:0");
    event.dtype = format::DType::kI64;
    event.stats = numbers;
    event.samples = std::as_bytes(std::span(raw));
    trace.event(event).close();
  }
  const Json stats = only(show(folder / "a.ctrace"), "stats");
  CHECK(stats["min"] == std::numeric_limits<int64_t>::min());
  CHECK(stats["amax"] == uint64_t{1} << 63);
  CHECK(stats["sum"] == "-18446744073709551616");
  CHECK(stats["samples"] == Json::parse("[9007199254740993, -1]"));
  CHECK(stats["shape"].is_null());
  CHECK(stats["scope"].is_null());
}

TEST_CASE("show --json: a finding carries its stacks as lists of text", "[cli]") {
  const TempDir folder;
  write_all_kinds(folder / "a.ctrace");
  const Json finding = only(show(folder / "a.ctrace"), "finding");
  CHECK(finding["kind"] == "freed-under-output");
  CHECK(finding["level"] == "error");
  CHECK(finding["stacks"] ==
        Json::parse(R"({"alloc": ["a"], "launch": ["l1", "l2"], "free": []})"));
  CHECK(finding["other"] == "input:0");
  CHECK(finding["suppressed"] == false);
}

TEST_CASE("show: records and steps can be chosen", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder trace(path);
  for (uint32_t step = 0; step < 5; ++step) {
    trace.step(step).stats({.values = {1}}).launch({});
  }
  trace.close();
  const auto chosen = show(path, {"--records", "launch,stats", "--steps", "1|3-"});
  REQUIRE(chosen.size() == 6);
  CHECK(chosen[0]["step"] == 1);
  CHECK(chosen[5]["step"] == 4);
  CHECK(convtrace({"show", path, "--records", "lunch"}).exit_code == 2);
  CHECK(convtrace({"show", path, "--steps", "3-1"}).exit_code == 2);
}

TEST_CASE("show: names from a trace cannot act on a terminal", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  const std::string evil = "x\x1b]0;owned\x07\ny";
  TraceBuilder(path)
      .stats({.scope = evil, .slot = evil, .op = evil, .kernel = evil, .values = {1}})
      .launch({.kernel = evil, .scope = evil})
      .finding({.scope = evil,
                .op = evil,
                .slot = evil,
                .other = evil,
                .alloc_stack = {evil},
                .message = evil})
      .diagnostic(format::Level::kInfo, evil, evil)
      .fact(evil, evil)
      .close();
  for (const char* command : {"show", "findings", "info"}) {
    for (const bool json : {false, true}) {
      CAPTURE(command, json);
      std::vector<std::string> arguments{command, path};
      if (json) arguments.push_back("--json");
      if (command == std::string("info")) arguments.push_back("--all");
      const ProcessResult result = convtrace(arguments);
      CHECK(result.out.find_first_of("\x1b\x07") == std::string::npos);
      CHECK(result.out.find("owned") != std::string::npos);
    }
  }
}

TEST_CASE("show: the table has one line a record under a header", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).step(2).stats({.scope = "h.0", .values = {1, 2}}).close();
  const ProcessResult result = convtrace({"show", path});
  CHECK(result.exit_code == 0);
  std::istringstream lines(result.out);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  REQUIRE(all.size() == 3);
  CHECK(all[0].find("record") != std::string::npos);
  CHECK(all[2].find("forward h.0 output:0") != std::string::npos);
  CHECK(all[2].find("mean 1.5") != std::string::npos);
}

TEST_CASE("show: a reader that leaves early is no failure, a full disk is", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder trace(path);
  for (int i = 0; i < 20000; ++i) trace.launch({});
  trace.close();
  const std::string command = std::string(CONVTRACE_PROGRAM) + " show --json " + path;
  const ProcessResult head =
      run_process({"bash", "-c", "set -o pipefail; " + command + " | head -n 1"});
  CHECK(head.exit_code == 0);
  CHECK(head.err.empty());
  const ProcessResult full = run_process({"bash", "-c", command + " > /dev/full"});
  CHECK(full.exit_code == 1);
  CHECK(full.err.find("CT-2106 ") != std::string::npos);
}

}  // namespace convtrace::test
