#include "tools/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tools/weights/compare.h"
#include "tools/weights/weights.h"

namespace convtrace::test {
namespace {

using format::DType;
using format::Phase;
using weights::Verdict;

using Numbers = std::vector<float>;

/// `count` numbers without a pattern, others for each seed.
Numbers numbers(uint32_t seed, size_t count = 64) {
  Numbers all;
  for (size_t i = 0; i < count; ++i)
    all.push_back(std::sin(static_cast<float>(i + 1) * (1.3F + static_cast<float>(seed))));
  return all;
}

struct Recorded {
  std::string scope, name;
  Numbers values;
  DType dtype = DType::kF32;
};

/// A program whose parameters are `versions[0]` at first and `versions[i]` behind step i - 1.
void write(const std::string& path, const std::vector<std::vector<Recorded>>& versions,
           uint32_t rank = 0, uint32_t world_size = 1) {
  TraceBuilder trace(path);
  trace.rank(rank, world_size);
  for (uint32_t i = 0; i < versions.size(); ++i) {
    if (i < 2) trace.step(0);
    if (i >= 2) trace.step(i - 1);
    for (const Recorded& one : versions[i])
      trace.stats({.scope = one.scope,
                   .slot = "param:" + one.name,
                   .phase = i == 0 ? Phase::kForward : Phase::kOptimizer,
                   .dtype = one.dtype,
                   .values = one.values});
  }
  trace.close();
}

std::vector<Recorded> layer(uint32_t seed) {
  return {{.scope = "fc", .name = "weight", .values = numbers(seed)},
          {.scope = "fc", .name = "bias", .values = numbers(seed + 100, 8)}};
}

weights::Weights read(const std::string& path) {
  weights::Weights all;
  std::string error;
  REQUIRE(weights::read_weights(path, all, error));
  return all;
}

struct Result {
  weights::Weights a, b;
  weights::Comparison comparison;
  const weights::Compared& of(const std::string& name) const {
    const auto found = std::ranges::find(comparison.parameters, name, &weights::Compared::name);
    REQUIRE(found != comparison.parameters.end());
    return *found;
  }
};

Result compared(const std::string& a, const std::string& b, weights::Names names = {},
                const weights::Choice& of_a = {}) {
  Result result{read(a), read(b), {}};
  result.comparison = weights::compare(result.a, result.b, names, of_a, {});
  return result;
}

TEST_CASE("weights: equal, and equal at a version that was asked for", "[weights]") {
  const TempDir dir;
  write(dir / "a.ctrace", {layer(1), layer(2), layer(3)});
  write(dir / "b.ctrace", {layer(3)});
  write(dir / "early.ctrace", {layer(2)});
  const Result last = compared(dir / "a.ctrace", dir / "b.ctrace");
  CHECK(last.comparison.count(Verdict::kEqual) == 2);
  CHECK(last.comparison.faults() == 0);
  const Result asked = compared(dir / "a.ctrace", dir / "early.ctrace", {}, {.step = 0});
  CHECK(asked.comparison.count(Verdict::kEqual) == 2);
}

TEST_CASE("weights: a version of before is stale, on either side", "[weights]") {
  const TempDir dir;
  write(dir / "a.ctrace", {layer(1), layer(2), layer(3), layer(4)});
  write(dir / "b.ctrace", {layer(2)});
  for (const bool swapped : {false, true}) {
    const Result result = swapped ? compared(dir / "b.ctrace", dir / "a.ctrace")
                                  : compared(dir / "a.ctrace", dir / "b.ctrace");
    const weights::Compared& weight = result.of("fc.weight");
    CHECK(weight.verdict == Verdict::kStale);
    CHECK(weight.stale_by == 2);
    CHECK(weight.stale_is_b == !swapped);
    CHECK(weight.version == 0);
    CHECK(result.comparison.faults() == 2);
  }
}

TEST_CASE("weights: rounded to another type is no fault, another number is", "[weights]") {
  const TempDir dir;
  Numbers rounded = numbers(1), wrong = numbers(1);
  for (float& value : rounded) value *= 1 + 1.0F / 1024;  // within half a unit of bf16
  wrong[5] += 0.5F;
  write(dir / "a.ctrace", {{{.scope = "fc", .name = "weight", .values = numbers(1)}}});
  write(dir / "cast.ctrace",
        {{{.scope = "fc", .name = "weight", .values = rounded, .dtype = DType::kBF16}}});
  write(dir / "wrong.ctrace",
        {{{.scope = "fc", .name = "weight", .values = wrong, .dtype = DType::kBF16}}});
  write(dir / "wrong_f32.ctrace", {{{.scope = "fc", .name = "weight", .values = wrong}}});
  CHECK(compared(dir / "a.ctrace", dir / "cast.ctrace").of("fc.weight").verdict == Verdict::kCast);
  CHECK(compared(dir / "a.ctrace", dir / "wrong.ctrace").of("fc.weight").verdict ==
        Verdict::kDiffers);
  CHECK(compared(dir / "a.ctrace", dir / "wrong_f32.ctrace").of("fc.weight").verdict ==
        Verdict::kDiffers);
}

TEST_CASE("weights: the same numbers in another order", "[weights]") {
  const TempDir dir;
  Numbers turned = numbers(1);
  std::ranges::reverse(turned);
  write(dir / "a.ctrace", {{{.scope = "fc", .name = "weight", .values = numbers(1)}}});
  write(dir / "b.ctrace", {{{.scope = "fc", .name = "weight", .values = turned}}});
  CHECK(compared(dir / "a.ctrace", dir / "b.ctrace").of("fc.weight").verdict == Verdict::kPermuted);
}

TEST_CASE("weights: missing on either side", "[weights]") {
  const TempDir dir;
  write(dir / "a.ctrace", {layer(1)});
  write(dir / "b.ctrace", {{layer(1)[0], {.scope = "head", .name = "weight", .values = {1}}}});
  const Result result = compared(dir / "a.ctrace", dir / "b.ctrace");
  CHECK(result.of("fc.weight").verdict == Verdict::kEqual);
  CHECK(result.of("fc.bias").verdict == Verdict::kMissing);
  CHECK(result.of("fc.bias").in_b.empty());
  CHECK(result.of("head.weight").in_a.empty());
}

/// Four ranks of two copies of two pieces.
void write_pieces(const TempDir& dir, const Numbers& whole, bool last_differs) {
  const auto half = static_cast<ptrdiff_t>(whole.size() / 2);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Numbers piece = rank % 2 == 0 ? Numbers(whole.begin(), whole.begin() + half)
                                  : Numbers(whole.begin() + half, whole.end());
    if (last_differs && rank % 2 == 1) piece.back() += 1;
    write(dir / ("r" + std::to_string(rank) + ".ctrace"),
          {{{.scope = "fc", .name = "weight", .values = piece}}}, rank, 4);
  }
}

TEST_CASE("weights: pieces of ranks are put together by their numbers", "[weights][shards]") {
  const TempDir whole, pieces, others;
  write(whole / "a.ctrace", {{{.scope = "fc", .name = "weight", .values = numbers(1)}}});
  write_pieces(pieces, numbers(1), false);
  write_pieces(others, numbers(1), true);
  CHECK(compared(whole / "a.ctrace", pieces / ".").of("fc.weight").verdict ==
        Verdict::kEqualNumbers);
  CHECK(compared(pieces / ".", whole / "a.ctrace").of("fc.weight").verdict ==
        Verdict::kEqualNumbers);
  CHECK(compared(whole / "a.ctrace", others / ".").of("fc.weight").verdict == Verdict::kDiffers);
}

TEST_CASE("weights: ranks that should hold copies and do not", "[weights][shards]") {
  const TempDir whole, copies;
  write(whole / "a.ctrace", {layer(1)});
  write(copies / "0.ctrace", {layer(1)}, 0, 2);
  write(copies / "1.ctrace", {{layer(2)[0], layer(1)[1]}}, 1, 2);
  const Result result = compared(whole / "a.ctrace", copies / ".");
  CHECK(result.of("fc.weight").verdict == Verdict::kParted);
  CHECK(result.of("fc.bias").verdict == Verdict::kEqual);
}

TEST_CASE("weights: pieces of a rank without a trace are not known", "[weights][shards]") {
  const TempDir whole, pieces, some;
  write(whole / "a.ctrace", {{{.scope = "fc", .name = "weight", .values = numbers(1)}}});
  write_pieces(pieces, numbers(1), false);
  write_pieces(some, numbers(1), false);
  for (const char* rank : {"r1.ctrace", "r3.ctrace"}) std::filesystem::remove(some / rank);
  for (const TempDir* other : {&whole, &pieces}) {
    const Result result = compared(*other / ".", some / ".");
    CHECK(result.of("fc.weight").verdict == Verdict::kNotKnown);
    CHECK(result.of("fc.weight").text == "fc.weight may be on ranks of B that have no trace.");
    REQUIRE(result.b.incomplete.size() == 1);
    CHECK(result.b.incomplete[0].ends_with("has traces of 2 ranks of 4"));
    CHECK(compared(some / ".", *other / ".").of("fc.weight").verdict == Verdict::kNotKnown);
  }
  for (const char* rank : {"r0.ctrace", "r2.ctrace"}) std::filesystem::remove(some / rank);
  // A parameter that is on other ranks alone, as of another stage of a pipeline.
  write(some / "r0.ctrace", {{{.scope = "other", .name = "weight", .values = {1}}}}, 0, 4);
  write(some / "r2.ctrace", {{{.scope = "other", .name = "weight", .values = {1}}}}, 2, 4);
  CHECK(compared(whole / ".", some / ".").of("fc.weight").verdict == Verdict::kNotKnown);
  CHECK(compared(whole / ".", some / ".").of("other.weight").verdict == Verdict::kMissing);
}

TEST_CASE("weights: what differs is said", "[weights]") {
  const auto text = [](Numbers a, Numbers b) {
    const TempDir dir;
    write(dir / "a.ctrace", {{{.scope = "fc", .name = "weight", .values = std::move(a)}}});
    write(dir / "b.ctrace", {{{.scope = "fc", .name = "weight", .values = std::move(b)}}});
    return compared(dir / "a.ctrace", dir / "b.ctrace").of("fc.weight").text;
  };
  Numbers other = numbers(1);
  other[3] += 1e-6F;
  const std::string small = text(numbers(1), other);
  CHECK_THAT(small, !Catch::Contains(" 0 %"));
  CHECK_THAT(small, Catch::Contains(" in A, "));
  other[3] = std::nanf("");
  CHECK_THAT(text(numbers(1), other), Catch::Contains("NaN 0 in A, 1 in B"));
}

TEST_CASE("weights: of integers nothing is said about numbers that are not compared", "[weights]") {
  const TempDir dir;
  const auto counted = [](float last) {
    return std::vector<Recorded>{
        {.scope = "fc", .name = "index", .values = {1, 2, last}, .dtype = DType::kI64}};
  };
  write(dir / "a.ctrace", {counted(3)});
  write(dir / "b.ctrace", {counted(4)});
  const Result result = compared(dir / "a.ctrace", dir / "b.ctrace");
  CHECK(result.of("fc.index").verdict == Verdict::kDiffers);
  CHECK_THAT(result.of("fc.index").text,
             Catch::Contains("differs in its bits; numbers of i64 are not compared"));
}

TEST_CASE("weights: a parameter that a program keeps in another module", "[weights][names]") {
  const TempDir dir;
  write(dir / "a.ctrace", {{{.scope = "model.0.norm", .name = "weight", .values = numbers(1)}}});
  write(dir / "b.ctrace", {{{.scope = "0.qkv", .name = "norm_weight", .values = numbers(1)}}});
  weights::Names names;
  names.modules.push_back({"model", ""});
  names.moved.push_back({"*.norm.weight", "*.qkv.norm_weight"});
  const Result result = compared(dir / "a.ctrace", dir / "b.ctrace", names);
  REQUIRE(result.comparison.parameters.size() == 1);
  CHECK(result.comparison.parameters[0].verdict == Verdict::kEqual);
  CHECK(result.comparison.parameters[0].in_b == std::vector<std::string>{"0.qkv.norm_weight"});
}

TEST_CASE("weights: fused modules, and modules of another name", "[weights][names]") {
  const TempDir dir;
  std::vector<Recorded> parts;
  Numbers all;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const Numbers one = numbers(static_cast<uint32_t>(name[0]));
    parts.push_back(
        {.scope = std::string("model.0.attn.") + name, .name = "weight", .values = one});
    all.insert(all.end(), one.begin(), one.end());
  }
  write(dir / "a.ctrace", {parts});
  write(dir / "b.ctrace", {{{.scope = "0.attn.qkv_proj", .name = "weight", .values = all}}});
  weights::Names names;
  names.modules.push_back({"model", ""});
  const Result result = compared(dir / "a.ctrace", dir / "b.ctrace", names);
  REQUIRE(result.comparison.parameters.size() == 1);
  CHECK(result.of("0.attn.qkv_proj.weight").verdict == Verdict::kEqualNumbers);
  CHECK(result.of("0.attn.qkv_proj.weight").in_a.size() == 3);
  weights::Names back;
  back.modules.push_back({"", "model"});
  const Result turned = compared(dir / "b.ctrace", dir / "a.ctrace", back);
  REQUIRE(turned.comparison.parameters.size() == 1);
  CHECK(turned.of("0.attn.qkv_proj.weight").verdict == Verdict::kEqualNumbers);
}

}  // namespace
}  // namespace convtrace::test
