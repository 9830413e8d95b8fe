#include <limits>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

using format::Phase;
using tools::Json;

std::vector<Json> view(const std::string& option, const std::string& path) {
  const ProcessResult result = convtrace({"show", option, "--json", path});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return json_lines(result.out);
}

format::TensorStats indices(uint64_t storage, format::Padding padding, int64_t index) {
  format::TensorStats event;
  event.dtype = format::DType::kI64;
  event.value.storage = storage;
  event.stats.count = 8;
  event.padding = padding;
  event.pad_index = index;
  return event;
}

TEST_CASE("show --density: padding that was counted, and padding that a device's statistics tell",
          "[cli][show]") {
  const TempDir dir;
  const std::vector<uint64_t> rows = {3, 0};
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(4).stats({.scope = "",
                       .slot = "input:tokens",
                       .phase = Phase::kData,
                       .dtype = format::DType::kI64,
                       .value = {.storage = 7}});
  format::TensorStats counted = indices(7, format::Padding::kEmbedding, 1);
  counted.pad_count = 3;
  counted.pad_rows = rows;
  counted.capture = format::Capture::kHash;
  trace.event(counted);
  format::TensorStats device = indices(8, format::Padding::kLabels, -100);
  device.pad_count = format::kNotCounted;
  device.stats.negative = 2;
  trace.event(device);
  device.pad_index = 0;
  device.stats.pos_zero = 4;
  trace.event(device);
  trace.close();

  const std::vector<Json> lines = view("--density", dir / "t.ctrace");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == Json::parse(R"({"step": 4, "input_type": "EMBED", "input_name": "input:tokens",
        "pad_index": 1, "density": 62.5, "valid_tokens": 5, "total_tokens": 8,
        "valid_tokens_per_batch": [1, 4]})"));
  CHECK(lines[1]["input_type"] == "LABEL");
  CHECK(lines[1]["valid_tokens"] == 6);
  CHECK(lines[2]["valid_tokens"] == 4);

  const std::string text = convtrace({"show", "--density", dir / "t.ctrace"}).out;
  CHECK(text.starts_with(
      "STEP | INPUT TYPE | INPUT NAME | PAD IDX | DENSITY | VALID TOKENS | TOTAL TOKENS | VALID "
      "TOKENS/BATCH\n4 | EMBED | input:tokens | 1 | 62.5 % | 5 | 8 | [1, 4]\n"));
}

TEST_CASE("show --density: what cannot be told is said", "[cli][show]") {
  const TempDir dir;
  TraceBuilder trace(dir / "t.ctrace");
  format::TensorStats device = indices(8, format::Padding::kEmbedding, 50256);
  device.pad_count = format::kNotCounted;
  trace.event(device).close();
  const ProcessResult result = convtrace({"show", "--density", dir / "t.ctrace"});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("| ? | ? | 8 | N/A") != std::string::npos);
  CHECK(result.err.find("1 input on a device") != std::string::npos);

  TraceBuilder(dir / "none.ctrace").step(0).close();
  CHECK(convtrace({"show", "--density", dir / "none.ctrace"}).err.find("CT-2301 ") !=
        std::string::npos);
}

TEST_CASE("show --memory: segments, blocks and peaks of each step's four moments", "[cli][show]") {
  constexpr uint64_t kMiB = 1 << 20;
  const format::Device cuda{format::Device::Type::kCuda, 0};
  const auto block = [&cuda](uint64_t address, uint64_t mib, uint64_t generation) {
    return MemorySpec{
        .address = address * kMiB, .bytes = mib * kMiB, .generation = generation, .device = cuda};
  };
  MemorySpec segment = block(100, 20, 1), other = block(200, 4, 2);
  segment.source = other.source = format::MemorySource::kDriver;
  const TempDir dir;
  TraceBuilder(dir / "t.ctrace")
      .rank(1, 2)
      .alloc(segment)
      .alloc(other)  // a library's own
      .alloc(block(100, 2, 3))
      .step(0)
      .enter("")
      .alloc(block(102, 8, 4))
      .enter("h")
      .leave("h")
      .free(block(102, 8, 4))
      .leave("")
      .enter("", Phase::kBackward)
      .free(block(100, 2, 3))
      .leave("", Phase::kBackward)
      .step(1)
      .enter("")
      .free(segment)
      .leave("")
      .close();
  const std::vector<Json> lines = view("--memory", dir / "t.ctrace");
  REQUIRE(lines.size() == 6);
  const auto figures = [&lines](size_t i) {
    std::vector<double> found;
    for (const char* key : {"allocated_mib", "max_allocated_mib", "cached_mib", "max_cached_mib",
                            "inactive_mib", "max_inactive_mib"}) {
      found.push_back(lines[i][key].get<double>());
    }
    return found;
  };
  CHECK(lines[0]["phase"] == "pre_forward");
  CHECK(lines[0]["device"] == "cuda:0");
  CHECK(figures(0) == std::vector<double>{2, 2, 20, 20, 18, 18});
  CHECK(lines[1]["phase"] == "post_forward");
  CHECK(figures(1) == std::vector<double>{2, 10, 20, 20, 18, 18});
  CHECK(lines[3]["phase"] == "post_backward");
  CHECK(figures(3) == std::vector<double>{0, 10, 20, 20, 0, 18});
  CHECK(lines[5]["step"] == 1);
  CHECK(figures(5) == std::vector<double>{0, 10, 0, 20, 0, 18});

  const std::string text = convtrace({"show", "--memory", dir / "t.ctrace", "--steps", "0"}).out;
  CHECK(text.starts_with(
      "[1/2] step 0 memory (MiB) | phase: pre_forward | allocated: 2 | max allocated: 2 | cached: "
      "20 | max cached: 20 | inactive: 18 | max inactive: 18 | device: cuda:0\n"));
  CHECK(text.find("step 1") == std::string::npos);
}

TEST_CASE("show --memory: CPU memory is not cached; no reports are said", "[cli][show]") {
  const TempDir dir;
  TraceBuilder(dir / "t.ctrace")
      .alloc({.address = 4096, .bytes = 1 << 19, .generation = 1})
      .enter("")
      .leave("")
      .close();
  const std::vector<Json> lines = view("--memory", dir / "t.ctrace");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["allocated_mib"] == 0.5);
  CHECK(lines[0]["cached_mib"].is_null());

  TraceBuilder(dir / "none.ctrace").enter("").leave("").close();
  const ProcessResult none = convtrace({"show", "--memory", dir / "none.ctrace"});
  CHECK(none.out.empty());
  CHECK(none.err.find("CONVTRACE_CPU_ALLOC") != std::string::npos);
}

TEST_CASE("show --norms: of each step and weight", "[cli][show]") {
  const TempDir dir;
  const auto gradient = [](const char* scope, const char* slot, std::vector<float> values) {
    return StatsSpec{
        .scope = scope, .slot = slot, .phase = Phase::kBackward, .values = std::move(values)};
  };
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(0)
      .stats({.scope = "", .slot = "loss", .values = {2.5F}})
      .stats(gradient("", "grad:bias", {3}))
      .stats(gradient("h.0", "grad:weight", {0, 4}))
      .step(1)
      .stats({.scope = "", .slot = "loss", .values = {2}})
      .stats({.scope = "", .slot = "loss", .values = {1}})
      .stats({.scope = "", .slot = "loss_scale", .values = {1024}})
      .stats({.scope = "h.0", .slot = "output:0", .values = {7}})
      .close();
  const std::vector<Json> lines = view("--norms", dir / "t.ctrace");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == Json::parse(R"({"step": 0, "losses": [2.5], "loss_scale": null,
        "gradient_norm": 5.0, "unclipped_norm": null, "clip_factor": null, "clip_norms": [],
        "local_norms": {"bias": 3.0, "h.0.weight": 4.0}})"));
  CHECK(lines[1] == Json::parse(R"({"step": 1, "losses": [2.0, 1.0], "loss_scale": 1024.0,
        "gradient_norm": null, "unclipped_norm": null, "clip_factor": null, "clip_norms": [],
        "local_norms": {}})"));
  CHECK(
      convtrace({"show", "--norms", dir / "t.ctrace"}).out ==
      "step  loss  norm before clipping  factor  gradient norm  loss scale  largest of one weight\n"
      "0     2.5   -                     -       5              -           4 h.0.weight\n"
      "1     2, 1  -                     -       -              1024        -\n");
  CHECK(convtrace({"show", "--norms", "--steps", "1", dir / "t.ctrace"}).out.find("2.5") ==
        std::string::npos);
}

TEST_CASE("show --norms: before clipping and behind it", "[cli][show]") {
  const TempDir dir;
  const auto value = [](const char* slot, std::vector<float> values) {
    return StatsSpec{
        .scope = "", .slot = slot, .phase = Phase::kBackward, .values = std::move(values)};
  };
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(0)
      .stats(value("grad_unclipped:a", {6}))
      .stats(value("grad_norm", {10}))
      .stats(value("grad_unclipped:a", {5}))  // by another function
      .stats(value("grad:a", {3}))
      .stats(value("grad:b", {8}))
      .close();
  const std::vector<Json> lines = view("--norms", dir / "t.ctrace");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["unclipped_norm"] == 10.0);
  CHECK(lines[0]["clip_norms"] == Json::array({10.0}));
  CHECK(lines[0]["gradient_norm"] == lines[0]["clip_factor"].get<double>() * 10);
  CHECK(lines[0]["local_norms"] == Json::parse(R"({"a": 3.0, "b": 8.0})"));
}

TEST_CASE("show --norms: what is not finite is not left out", "[cli][show]") {
  constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const TempDir dir;
  const auto value = [](const char* slot, std::vector<float> values) {
    return StatsSpec{.scope = "", .slot = slot, .values = std::move(values)};
  };
  TraceBuilder trace(dir / "t.ctrace");
  trace.step(0)
      .stats(value("loss", {-kInf}))
      .stats(value("grad:a", {3, kInf}))
      .stats(value("grad:b", {4}));
  trace.step(1)
      .stats(value("loss", {kNoNumber}))
      .stats(value("grad:a", {3, kNoNumber, kInf}))
      .close();
  CHECK(
      convtrace({"show", "--norms", dir / "t.ctrace"}).out ==
      "step  loss  norm before clipping  factor  gradient norm  loss scale  largest of one weight\n"
      "0     -inf  -                     -       inf            -           inf a\n"
      "1     nan   -                     -       nan            -           nan a\n");
}

TEST_CASE("show --norms: values of a step that come two steps late are in its row", "[cli][show]") {
  const TempDir dir;
  const auto gradient = [](const char* slot, float value) {
    return StatsSpec{.scope = "", .slot = slot, .phase = Phase::kBackward, .values = {value}};
  };
  TraceBuilder trace(dir / "t.ctrace");
  for (const uint32_t step : {1U, 2U, 3U}) trace.step(step).stats(gradient("grad:a", 3));
  trace.step(1).stats(gradient("grad:b", 4)).close();
  const std::vector<Json> lines = view("--norms", dir / "t.ctrace");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["step"] == 1);
  CHECK(lines[0]["local_norms"] == Json::parse(R"({"a": 3.0, "b": 4.0})"));
}

TEST_CASE("show --norms: a trace of hashes has none, and says so", "[cli][show]") {
  const TempDir dir;
  TraceBuilder(dir / "t.ctrace")
      .step(0)
      .stats({.scope = "", .slot = "grad:bias", .capture = format::Capture::kHash, .values = {3}})
      .close();
  const ProcessResult result = convtrace({"show", "--norms", dir / "t.ctrace"});
  CHECK(result.out.find("0 |") == std::string::npos);
  CHECK(result.err.find("CT-2301 ") != std::string::npos);
}

TEST_CASE("show: a view takes no record kinds, and no other view", "[cli][show]") {
  for (const char* other : {"--memory", "--follow", "--records=stats"})
    CHECK(convtrace({"show", "--density", other, "t.ctrace"}).exit_code == 2);
}

}  // namespace
}  // namespace convtrace::test
