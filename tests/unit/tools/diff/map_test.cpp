// What the file of --map says of parameters and dimensions, and terms of a sum.

#include <fstream>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tests/unit/tools/diff/compared.h"
#include "tests/unit/tools/diff/ranks.h"
#include "tools/trace/names/map_file.h"

namespace convtrace::test {
namespace {

using diff::DiffResult;
using diff::DiffRules;
using diff::Verdict;
using format::Phase;

DiffRules rules_of(const std::string& text) {
  const TempDir dir;
  std::ofstream(dir / "map.toml") << text;
  DiffRules rules;
  std::string error;
  const bool read = diff::read_map(dir / "map.toml", rules, error);
  INFO(error);
  REQUIRE(read);
  return rules;
}

/// Rows and columns exchanged.
Numbers exchanged(const Numbers& all, size_t rows, size_t columns, size_t width) {
  Numbers result;
  for (size_t c = 0; c < columns; ++c)
    for (size_t r = 0; r < rows; ++r)
      for (size_t i = 0; i < width; ++i) result.push_back(all[(r * columns + c) * width + i]);
  return result;
}

TEST_CASE("map: dimensions in another order", "[diff][map]") {
  const DiffRules told = rules_of("[dimensions]\n\"*\" = [1, 0]\n");
  const Numbers w = numbers(2), x = numbers(1);
  const uint64_t rows =
      GENERATE(uint64_t{2}, uint64_t{4});  // as many as columns: the shape does not show it
  const uint64_t columns = 16 / rows;
  const auto step = [&](const Numbers& values, bool turned) -> Step {
    const Numbers own = turned ? exchanged(values, rows, columns, 4) : values;
    const uint64_t first = turned ? columns : rows;
    return {value("fc", "param:weight", w, Phase::kForward, {8, 8}),
            value("fc", "output:0", own, Phase::kForward, {first, 16 / first, 4})};
  };
  for (const size_t ranks : {size_t{1}, size_t{2}}) {
    const std::vector<Step> same(ranks, step(x, true));
    CHECK(compared({step(x, false)}, same, told).verdict == Verdict::kSame);
    CHECK(compared({step(x, false)}, same).verdict == Verdict::kDiverged);
    Numbers other = x;
    for (float& number : other) number *= 1.01F;
    const DiffResult scaled =
        compared({step(x, false)}, std::vector<Step>(ranks, step(other, true)), told);
    CHECK(scaled.verdict == Verdict::kDiverged);
    CHECK(where(scaled).slot == "output:0");
  }
  Step transposed = step(x, true);
  transposed[0] = value("fc", "param:weight", exchanged(w, 8, 8, 1), Phase::kForward, {8, 8});
  CHECK(where(compared({step(x, false)}, {transposed}, told)).slot == "param:weight");
}

TEST_CASE("map: a norm that is computed inside the layer behind it", "[diff][map]") {
  const DiffRules told = rules_of("[parameters]\n\"*.mix.fc.norm_weight\" = \"*.norm.weight\"\n");
  const Numbers x = numbers(1), normed = numbers(2), out = numbers(3), weight = numbers(4, 8);
  const auto step = [&](bool inside, const Numbers& own) -> Step {
    return {
        value(inside ? "0.mix.fc" : "0.norm", inside ? "param:norm_weight" : "param:weight", own),
        value("0.norm", "input:0", x), value("0.norm", "output:0", inside ? x : normed),
        value("0.mix", "input:0", inside ? x : normed), value("0.mix.fc", "output:0", out)};
  };
  CHECK(compared({step(false, weight)}, {step(true, weight)}, told).verdict == Verdict::kSame);
  CHECK(compared({step(true, weight)}, {step(false, weight)}, told).verdict == Verdict::kSame);
  CHECK(compared({step(true, weight)}, {step(true, weight)}, told).verdict == Verdict::kSame);
  CHECK(compared({step(false, weight)}, {step(true, weight)}).verdict == Verdict::kDiverged);
  const DiffResult other = compared({step(false, weight)}, {step(true, numbers(5, 8))}, told);
  CHECK(where(other).slot == "param:weight");
}

TEST_CASE("map: what is no name and no order is refused", "[diff][map]") {
  for (const char* bad : {"[parameters]\na = \"b\"\n", "[parameters]\n\"a.b\" = 1\n",
                          "[dimensions]\n\"*\" = [1, 2]\n", "[dimensions]\n\"*\" = [0, 0]\n",
                          "[dimensions]\n\"*\" = []\n"}) {
    const TempDir dir;
    std::ofstream(dir / "map.toml") << bad;
    DiffRules rules;
    std::string error;
    CHECK_FALSE(diff::read_map(dir / "map.toml", rules, error));
    CHECK_THAT(error, Catch::Contains("map.toml:2"));
  }
}

TEST_CASE("whole: an operand as its function left it may be a term of a sum", "[diff][whole]") {
  const Numbers g = numbers(3), other = numbers(4);
  Numbers rest = g;
  for (size_t i = 0; i < rest.size(); ++i) rest[i] -= other[i];
  const auto step = [](const Numbers& values) -> Step {
    Step all;
    for (const char* slot : {"input:0", "input_after:0"}) {
      all.push_back(value("fc", slot, values));
      all.back().op = "Reduced";
    }
    return all;
  };
  const DiffResult sum = compared({step(g)}, {step(other), step(rest)});
  CHECK(sum.verdict == Verdict::kSame);
  CHECK(sum.wholes->summed == 2);
  CHECK(compared({step(g)}, {step(other), step(other)}).verdict == Verdict::kDiverged);
}

}  // namespace
}  // namespace convtrace::test
