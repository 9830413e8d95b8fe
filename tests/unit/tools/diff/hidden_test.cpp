// What the report says of faults that may hide beside rounding.

#include <algorithm>

#include "tests/unit/tools/diff/command_scene.h"

namespace convtrace::test {
namespace {

/// Of one layer, whose output is off by `error` of its size.
Run layer(float error, format::DType dtype = format::DType::kF32) {
  Run run;
  run.add({.scope = "fc", .slot = "input:0", .values = std::vector<float>(64, 1)});
  Item& output = run.add({.scope = "fc", .slot = "output:0"});
  for (int i = 0; i < 64; ++i)
    output.values.push_back(static_cast<float>(i % 7 - 3) * (1 + (i % 2 == 0 ? error : -error)));
  output.dtype = dtype;
  return run;
}

Run on_tf32(Run run) {
  run.meta.facts.emplace_back("switch.matmul_fp32_precision", "tf32");
  return run;
}

std::string text(const Run& base, const Run& cand, std::vector<std::string> options = {}) {
  const Pair pair(base, cand);
  options.insert(options.begin(), {pair.base, pair.cand, "--exact", "off"});
  return run(options).out;
}

}  // namespace

TEST_CASE("hidden: a fault that TF32 hides is as large as TF32's roundoff", "[diff][text]") {
  CHECK(contains(text(layer(0), layer(1e-6F)), "a fault below 0.0015 % of a tensor's size"));
  CHECK(contains(text(on_tf32(layer(0)), on_tf32(layer(1e-3F))),
                 "a fault below 0.39 % of a tensor's size"));
}

TEST_CASE("hidden: what --tol and --noise allow is said", "[diff][text]") {
  CHECK(!contains(text(layer(0), layer(1e-6F)), "--tol"));
  const std::string by_hand = text(layer(0), layer(0.1F), {"--tol", "fc=0.5"});
  CHECK(contains(by_hand, "more than rounding explains, or --tol allows"));
  CHECK(contains(by_hand, "a fault below 50 % of a tensor's size"));
  const TempDir dir;
  layer(0.1F).write(dir / "noise.ctrace");
  const std::string noisy = text(layer(0), layer(0.1F), {"--noise", dir / "noise.ctrace"});
  CHECK(contains(noisy, "more than rounding and the --noise runs explain"));
  CHECK(!contains(noisy, "a fault below 0.0015 %"));
}

TEST_CASE("hidden: a gradient of a parameter may hide more than a value", "[diff][text]") {
  const auto run = [](float factor) {
    Run made = layer(0);
    made.add({.phase = format::Phase::kBackward,
              .scope = "fc",
              .slot = "grad_output:0",
              .values = std::vector<float>(64, 0.1F),
              .dtype = format::DType::kBF16});
    Item& gradient = made.add({.phase = format::Phase::kBackward,
                               .scope = "fc",
                               .slot = "grad:bias",
                               .values = std::vector<float>(32, 1),
                               .dtype = format::DType::kBF16});
    scale(gradient, factor);
    return made;
  };
  const std::string told = text(run(1), run(1.1F));
  CHECK(contains(told, "ROUNDING"));
  CHECK(contains(told, "13 % of a parameter's gradient"));
  CHECK(contains(told, "the terms of a gradient's sum, explain"));
}

TEST_CASE("hidden: what is below a millionth is a number that tells something", "[diff][text]") {
  const std::string told =
      text(layer(0, format::DType::kF64), layer(1e-6F, format::DType::kF64), {"--tol", "*=2.5e-7"});
  CHECK(contains(told, "tolerance used 2.5e-07"));
}

TEST_CASE("hidden: small tensors without raw values are known by averages alone", "[diff][text]") {
  const auto run = [](bool sampled, size_t shift) {
    Run made;
    Item& item = made.add({.scope = "fc", .slot = "output:0", .values = {1, 2, 3, 4}});
    std::rotate(item.values.begin(), item.values.begin() + static_cast<long>(shift),
                item.values.end());
    item.sampled = sampled;
    return made;
  };
  CHECK(contains(text(run(true, 0), run(true, 1)), "DIVERGED"));
  CHECK(contains(text(run(false, 0), run(false, 1)),
                 "of 1 value that differ only averages are known"));
  CHECK(!contains(text(layer(0), layer(1e-6F)), "averages"));
}

TEST_CASE("hidden: values that could not be read are counted", "[diff][text]") {
  Run base = layer(0);
  CHECK(!contains(text(base, base), "not read"));
  for (int i = 0; i < 3; ++i) base.add({.kind = Item::Kind::kUnread});
  const std::string told = text(base, layer(0));
  CHECK(contains(told, "IDENTICAL"));
  CHECK(contains(told, "not read    3 values of the baseline and 0 of the candidate (tensor kind"));
}

TEST_CASE("hidden: of hashes alone nothing is known", "[diff][text]") {
  const auto run = [](float first) {
    Run made = layer(0);
    Item& item = made.add({.scope = "fc", .slot = "output:1", .values = {first, 2, 3, 4}});
    item.capture = format::Capture::kHash;
    return made;
  };
  CHECK(contains(text(run(1), run(100)), "a fault of any size would look the same"));
}

}  // namespace convtrace::test
