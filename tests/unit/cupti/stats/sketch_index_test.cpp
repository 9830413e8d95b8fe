// Where elements go in a sketch: the definition, and how estimates spread over its seeds.

#include <algorithm>
#include <functional>

#include "cupti/stats/tile/sketch_index.h"
#include "tests/unit/cupti/stats/sketched.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

PlainPlace place_of(uint64_t i, SketchSeeds seeds = {}) {
  const SketchTurn turn = SketchWalk(i / kTurnElements, seeds).turn();
  const uint32_t state = advance(turn.signs, sketch_steps(i % kTurnElements / 4));
  const auto place = static_cast<uint32_t>((i / kPlaceElements + turn.rotation) % kSketchPlaces);
  return {static_cast<uint32_t>(i % 2) * kSketchPlaces + place,
          sketch_sign(state, static_cast<uint32_t>(i)) == 0 ? 1 : -1};
}

void require_same_place(PlainPlace got, PlainPlace want) {
  if (got.bucket != want.bucket || got.sign != want.sign) {
    FAIL("bucket " << got.bucket << ", sign " << got.sign << ", not " << want.bucket << ", "
                   << want.sign);
  }
}

TEST_CASE("sketch: the index function is the format's", "[stats][sketch]") {
  const auto plain = plain_places(100'000);
  for (uint64_t i = 0; i < plain.size(); ++i) require_same_place(place_of(i), plain[i]);
}

TEST_CASE("sketch: the vectors of the format", "[stats][sketch]") {
  const auto text = [](uint64_t first, uint64_t count) {
    std::string line;
    for (uint64_t i = first; i < first + count; ++i) {
      const PlainPlace place = place_of(i);
      line += (place.sign < 0 ? " -" : " +") + std::to_string(place.bucket);
    }
    return line;
  };
  CHECK(text(0, 10) == " -3 +11 +3 -11 +3 -11 +3 +11 -3 -11");
  CHECK(text(10, 10) == " -3 +11 +3 +11 -3 -11 +4 -12 -4 +12");
  CHECK(text(510, 4) == " +6 +14 +3 +11");
  CHECK(text(1'000'000, 4) == " -5 +13 -5 +13");
  CHECK(text((uint64_t{1} << 36) - 2, 4) == " +3 +11 -2 +10");
}

TEST_CASE("sketch: turn by turn comes to the same as at once", "[stats][sketch]") {
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, uint64_t{1} << 33}) {
    SketchWalk one(first), two(first), four(first);
    for (uint64_t turn = first; turn < first + 64; ++turn) {
      const SketchTurn want = SketchWalk(turn).turn();
      REQUIRE(one.turn().signs == want.signs);
      REQUIRE(one.turn().rotation == want.rotation);
      one.skip<1>();
      if ((turn - first) % 2 == 0) {
        REQUIRE(two.turn().rotation == want.rotation);
        two.skip<2>();
      }
      if ((turn - first) % 8 == 0) {
        REQUIRE(four.turn().signs == want.signs);
        REQUIRE(four.turn().rotation == want.rotation);
        four.skip<4>();
        four.skip<4>();
      }
    }
  }
}

using Pattern = std::function<double(uint64_t)>;

struct Case {
  std::string name;
  Pattern value;
};

std::vector<Case> patterns(uint64_t count) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> noise(count), left(count), right(count);
  for (auto* values : {&noise, &left, &right})
    for (double& value : *values) value = normal(random);
  const uint64_t width = count >= 8192 ? 96 : 32;
  std::vector<Case> cases = {
      {"constant", [](uint64_t) { return 1.0; }},
      {"alternating", [](uint64_t i) { return i % 2 == 0 ? 1.0 : -1.0; }},
      {"one row of 768", [](uint64_t i) { return i / 768 == 1 ? 1.0 : 0.0; }},
      {"one element", [](uint64_t i) { return i == 1234 ? 3.0 : 0.0; }},
      {"random", [=](uint64_t i) { return noise[i]; }},
      {"rank one", [=](uint64_t i) { return left[i / width] * right[i % width]; }},
  };
  for (const uint64_t stride : {8, 16, 48, 64, 100, 128, 256, 512, 768, 1024, 4096}) {
    cases.push_back({"a column at stride " + std::to_string(stride),
                     [=](uint64_t i) { return i % stride == 5 ? 1.0 : 0.0; }});
  }
  return cases;
}

TEST_CASE("sketch: over the seeds it is unbiased and near the truth whatever the values",
          "[stats][sketch]") {
  const uint64_t count = GENERATE(2048, 12'288, 40'000);
  constexpr size_t kSeeds = 1000;
  std::vector<std::vector<PlainPlace>> places;
  std::mt19937 random(7);
  std::vector<Case> cases = patterns(count);
  std::vector<std::vector<double>> ratios(cases.size());
  std::vector<std::vector<std::pair<uint64_t, double>>> values(cases.size());
  std::vector<double> lengths(cases.size());
  for (size_t c = 0; c < cases.size(); ++c) {
    for (uint64_t i = 0; i < count; ++i) {
      const double value = cases[c].value(i);
      if (value != 0) values[c].emplace_back(i, value);
      lengths[c] += value * value;
    }
  }
  std::vector<PlainPlace> made(count);
  for (size_t seed = 0; seed < kSeeds; ++seed) {
    const SketchSeeds seeds{static_cast<uint32_t>(random()), static_cast<uint32_t>(random())};
    for (uint64_t i = 0; i < count; ++i) made[i] = place_of(i, seeds);
    for (size_t c = 0; c < cases.size(); ++c) {
      Buckets sums{};
      for (const auto& [i, value] : values[c]) sums[made[i].bucket] += made[i].sign * value;
      ratios[c].push_back(length_of(sums) / std::sqrt(lengths[c]));
    }
  }
  for (size_t c = 0; c < cases.size(); ++c) {
    double square = 0;
    for (const double ratio : ratios[c]) square += ratio * ratio / kSeeds;
    std::ranges::sort(ratios[c]);
    INFO(cases[c].name << ", " << count << " elements: mean square " << square << ", "
                       << ratios[c][kSeeds / 20] << " to " << ratios[c][kSeeds - kSeeds / 20]);
    if (values[c].size() == 1) {
      CHECK(ratios[c].front() == 1);
      CHECK(ratios[c].back() == 1);
    }
    CHECK(square > 0.85);
    CHECK(square < 1.15);
    if (values[c].size() < 16) continue;  // they may all meet in pairs and cancel out
    CHECK(ratios[c][kSeeds / 20] > 0.45);
    CHECK(ratios[c][kSeeds - kSeeds / 20] < 1.6);
  }
}

}  // namespace
}  // namespace convtrace::stats::test
