#include <algorithm>
#include <functional>
#include <limits>

#include "tests/unit/cupti/stats/sketched.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

constexpr uint64_t kMillion = uint64_t{1} << 20;

std::vector<float> draw(uint64_t count, const std::function<float(std::mt19937_64&)>& sample) {
  std::mt19937_64 random(20240117);
  std::vector<float> values(count);
  for (auto& value : values) value = sample(random);
  return values;
}

float normal(std::mt19937_64& random) {
  static std::normal_distribution<float> distribution;
  distribution.reset();
  return distribution(random);
}

float heavy_tail(std::mt19937_64& random) {
  return normal(random) / std::sqrt(std::fabs(normal(random)) + 1e-6F);
}

/// The same in a type of 8 or 16 bits, rounded toward the smaller of two neighbours.
template <typename Bits>
std::vector<Bits> shortened(const std::vector<float>& values, DType dtype) {
  std::vector<std::pair<long double, Bits>> finite;
  for (uint32_t bits = 0; bits <= std::numeric_limits<Bits>::max(); ++bits) {
    const Decoded d = decode(dtype, bits);
    if (d.kind == Decoded::Kind::kFinite) finite.emplace_back(d.value, static_cast<Bits>(bits));
  }
  std::ranges::sort(finite);
  std::vector<Bits> rounded;
  for (const float value : values) {
    const auto above = std::ranges::upper_bound(finite, value, {}, [](auto& f) { return f.first; });
    rounded.push_back(above == finite.begin() ? above->second : std::prev(above)->second);
  }
  return rounded;
}

TEST_CASE("stats: sums are near the truth on seven distributions", "[stats][accuracy]") {
  const std::pair<const char*, std::function<float(std::mt19937_64&)>> kDistributions[] = {
      {"normal", normal},
      {"relu", [](auto& r) { return std::max(0.0F, normal(r)); }},
      {"mean 1e3", [](auto& r) { return 1e3F + normal(r); }},
      {"mean 1e6", [](auto& r) { return 1e6F + normal(r); }},
      {"heavy tail", heavy_tail},
      {"scale 1e-30", [](auto& r) { return 1e-30F * normal(r); }},
      {"scale 1e30", [](auto& r) { return 1e30F * normal(r); }},
  };
  for (const auto& [name, sample] : kDistributions) {
    INFO(name);
    std::vector<float> values = draw(kMillion + 1, sample);
    require_matches_reference(view_of(values, DType::kF32));
    values.resize(kMillion / 4 + 1);  // the reference takes its time
    const std::vector<double> wide(values.begin(), values.end());
    require_matches_reference(view_of(wide, DType::kF64));
    for (const DType dtype : {DType::kBF16, DType::kF16})
      require_matches_reference(view_of(shortened<uint16_t>(values, dtype), dtype));
    for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E8M0FNU})
      require_matches_reference(view_of(shortened<uint8_t>(values, dtype), dtype));
  }
}

TEST_CASE("stats: a standard deviation far below the mean is not lost in short floats",
          "[stats][accuracy]") {
  // Values around a power of two: their squares have the most significant bits there.
  for (const float spread : {1e-2F, 1e-3F}) {
    const auto values = draw(100'000, [&](auto& r) { return 1 + spread * normal(r); });
    require_matches_reference(view_of(shortened<uint16_t>(values, DType::kF16), DType::kF16));
    require_matches_reference(view_of(shortened<uint16_t>(values, DType::kBF16), DType::kBF16));
  }
  std::vector<uint16_t> one_differs(100'000, 0x3F80);
  one_differs[77'777] = 0x3F81;
  require_matches_reference(view_of(one_differs, DType::kBF16));
}

TEST_CASE("stats: bf16 whose squares leave the range of f32 is scaled", "[stats][accuracy]") {
  std::mt19937_64 random(9);
  for (const float scale : {1e-38F, 1e-20F, 1e-12F, 1e18F, 1e37F}) {
    INFO(scale);
    auto values = draw(20'000, [&](auto& r) { return scale * normal(r); });
    require_matches_reference(view_of(shortened<uint16_t>(values, DType::kBF16), DType::kBF16));
    for (auto& value : values) value = random() % 3 == 0 ? value : 1;  // beside ordinary ones
    require_matches_reference(view_of(shortened<uint16_t>(values, DType::kBF16), DType::kBF16));
  }
}

TEST_CASE("stats: the worst that f32 within 64 bytes does to a sum is as large as FORMAT.md says",
          "[stats][accuracy]") {
  // A thread adds up four rows of a block's 512 elements. Of each it loses what is just too small.
  constexpr uint64_t kRow = 512;
  std::vector<uint16_t> values(8 * kRow);
  for (uint64_t i = 0; i < values.size(); ++i) {
    const float even[] = {1, 0x1p-24F, 0x1p-25F, 0x1p-25F};
    const float value = i % 2 == 0 ? even[i / kRow % 4] : 0x1p-26F;
    values[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  const auto view = view_of(values, DType::kBF16);
  const format::Stats got = compute(view).stats, want = reference_stats(view);
  const double l1 = want.l1.as_f64(), lost = std::fabs(got.l1.as_f64() - l1) / l1;
  CHECK(lost > 1.5e-7);
  CHECK(lost <= 0x1p-22);
}

TEST_CASE("stats: every sum of f4e2m1fn is exact", "[stats][accuracy]") {
  const auto bytes = random_bytes(DType::kF4E2M1FN, 200'003, 10);
  const auto view = view_of(bytes, DType::kF4E2M1FN);
  const format::Stats got = compute(view).stats;
  const format::Stats want = reference_stats(view);
  CHECK(got.sum == want.sum);
  CHECK(got.l1 == want.l1);
  CHECK(got.l2 == want.l2);
  CHECK(got.mean == want.mean);
  double sums[format::Sketch::kBuckets] = {};
  const auto elements = logical_elements(view);
  const auto places = plain_places(elements.size());
  for (size_t i = 0; i < elements.size(); ++i)
    sums[places[i].bucket] +=
        places[i].sign * static_cast<double>(decode(DType::kF4E2M1FN, elements[i]).value);
  CHECK(std::ranges::equal(sums_of(got.sketch), sums));
}

TEST_CASE("stats: the mean survives a huge first element", "[stats][accuracy]") {
  auto values = draw(kMillion, normal);
  values[0] = 1e30F;
  const auto view = view_of(values, DType::kF32);
  const format::Stats got = compute(view).stats;
  const format::Stats want = reference_stats(view);
  REQUIRE(std::fabs(got.mean - want.mean) <= 1e-15 * std::fabs(want.mean));
}

TEST_CASE("stats: std of large integers close together is not lost", "[stats][accuracy]") {
  std::vector<int64_t> values(100000);
  std::mt19937_64 random(3);
  for (auto& value : values) value = (int64_t{1} << 60) + static_cast<int64_t>(random() % 1000);
  require_matches_reference(view_of(values, DType::kI64));
}

TEST_CASE("stats: std of short integers whose squares sum to more than f64 holds exactly",
          "[stats][accuracy]") {
  std::vector<uint16_t> values((1U << 21) + 100'001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? 65'535 : 65'534;
  require_matches_reference(view_of(values, DType::kU16));
}

TEST_CASE("stats: 16-bit sums of many values do not overflow or lose digits", "[stats][ort]") {
  // ONNX Runtime's StatisticsSubscriber keeps sums in the tensor's type: 1e5 twos in f16 became
  // inf.
  const std::vector<uint16_t> twos(100000, 0x4000);
  const format::Stats f16 = compute(view_of(twos, DType::kF16)).stats;
  REQUIRE(f16.sum.as_f64() == 200000);
  REQUIRE(f16.mean == 2);
  REQUIRE(f16.std == 0);
  REQUIRE(f16.l2 == std::sqrt(400000.0));
}

TEST_CASE("stats: std is the deviation from the mean, not from a sum", "[stats][ort]") {
  // ONNX Runtime's StatisticsSubscriber subtracts the mean from bucket sums.
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 4.0F : 6.0F;
  const format::Stats stats = compute(view_of(values, DType::kF32)).stats;
  REQUIRE(stats.mean == 5);
  REQUIRE(stats.std == 1);
}

TEST_CASE("stats: bf16 has a standard deviation", "[stats][ort]") {
  // ONNX Runtime's StatisticsSubscriber leaves 0 for it.
  const std::vector<uint16_t> values = {0x3F80, 0xBF80};  // 1, -1
  REQUIRE(compute(view_of(values, DType::kBF16)).stats.std == 1);
}

TEST_CASE("stats: one NaN does not hide the finite range", "[stats][ort]") {
  const std::vector<float> values = {1, std::nanf(""), -2};
  const format::Stats stats = compute(view_of(values, DType::kF32)).stats;
  REQUIRE(stats.nan == 1);
  REQUIRE(stats.min.as_f64() == -2);
  REQUIRE(stats.max.as_f64() == 1);
  REQUIRE(stats.mean == -0.5);
}

TEST_CASE("stats: f64 beyond the range of squares gives Inf, not NaN", "[stats][accuracy]") {
  const double huge = std::numeric_limits<double>::max();
  const std::vector<double> values = {-huge, huge};
  const format::Stats stats = compute(view_of(values, DType::kF64)).stats;
  REQUIRE(std::isinf(stats.l2));
  REQUIRE(std::isinf(stats.std));
  REQUIRE(stats.mean == 0);
  REQUIRE(stats.saturated == 2);
}

}  // namespace
}  // namespace convtrace::stats::test
