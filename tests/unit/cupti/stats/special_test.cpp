#include <algorithm>
#include <limits>

#include "tests/unit/cupti/stats/support.h"
#include "tests/unit/cupti/stats/unusual_patterns.h"
#include "tests/unit/cupti/stats/zeros.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

constexpr uint64_t kSizes[] = {1,    31,   32,    33,    255,    256,     257,     1023,   1024,
                               1025, 4095, 16384, 20000, 100001, 1048575, 1048576, 1048577};

std::vector<float> repeated(uint64_t count, std::initializer_list<float> pattern) {
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = pattern.begin()[i % pattern.size()];
  return values;
}

TEST_CASE("stats: f32 and bf16 match the reference at every interesting size", "[stats]") {
  for (const uint64_t count : kSizes) {
    INFO(count);
    std::mt19937_64 random(count);
    std::normal_distribution<float> normal;
    std::vector<float> f32(count);
    std::vector<uint16_t> bf16(count);
    for (uint64_t i = 0; i < count; ++i) {
      f32[i] = normal(random);
      bf16[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(f32[i]) >> 16);
    }
    require_matches_reference(view_of(f32, DType::kF32));
    require_matches_reference(view_of(bf16, DType::kBF16));
  }
}

/// Whether squares of f64 in the pattern leave its range, where l2 is infinite or zero.
bool squares_fit(DType dtype, const std::vector<uint64_t>& pattern) {
  const FloatBits f64 = float_bits(DType::kF64);
  return dtype != DType::kF64 || std::ranges::all_of(pattern, [&](uint64_t bits) {
           const uint64_t magnitude = bits & ~f64.sign;
           return magnitude == 0 || magnitude == f64.one || magnitude >= f64.inf;
         });
}

TEST_CASE("stats: tensors of one unusual kind match the reference in every float type", "[stats]") {
  for (const DType dtype : kFloatDTypes) {
    for (const auto& pattern : unusual_patterns(dtype)) {
      if (!squares_fit(dtype, pattern)) continue;
      for (const uint64_t count : {1u, 3u, 1024u, 4097u, 10000u}) {
        INFO(format::to_string(dtype) << " 0x" << std::hex << pattern[0] << " ... x " << count);
        require_matches_reference(view_of(repeated_bits(dtype, count, pattern), dtype));
      }
    }
  }
}

TEST_CASE("stats: squares of f64 that leave its range give an infinite or no length", "[stats]") {
  const FloatBits f64 = float_bits(DType::kF64);
  const auto of = [](uint64_t bits) {
    return compute(view_of(repeated_bits(DType::kF64, 5000, {bits}), DType::kF64)).stats;
  };
  CHECK(of(f64.largest).l2 == INFINITY);
  CHECK(of(f64.largest).saturated == 5000);
  const format::Stats tiny = of(1);
  CHECK(tiny.l2 == 0);
  CHECK(tiny.subnormal == 5000);
  CHECK(tiny.mean == std::numeric_limits<double>::denorm_min());
  CHECK(tiny.sum.as_f64() == 5000 * std::numeric_limits<double>::denorm_min());
}

TEST_CASE("stats: a NaN prefix of any length leaves the finite rest exact", "[stats]") {
  for (const uint64_t prefix : {1u, 255u, 256u, 4095u, 4096u, 4097u, 9000u}) {
    INFO(prefix);
    auto values = repeated(10000, {1e6F, 1e6F + 1});
    for (uint64_t i = 0; i < prefix; ++i) values[i] = std::nanf("");
    require_matches_reference(view_of(values, DType::kF32));
  }
}

TEST_CASE("stats: strange values in one place only do not disturb the rest", "[stats]") {
  for (const size_t at : {0u, 1u, 1023u, 2048u, 4095u, 8191u, 9999u}) {
    for (const float strange : {std::nanf(""), -std::numeric_limits<float>::infinity(), 1e-45F,
                                std::numeric_limits<float>::max()}) {
      auto values = repeated(10000, {0.0F, 1.5F, -2.25F});
      values[at] = strange;
      require_matches_reference(view_of(values, DType::kF32));
    }
  }
}

TEST_CASE("stats: integer extremes are exact in 128 bits", "[stats]") {
  const int64_t low = std::numeric_limits<int64_t>::min();
  const int64_t high = std::numeric_limits<int64_t>::max();
  for (const uint64_t count : {1u, 2u, 1000u, 100000u}) {
    std::vector<int64_t> values(count, low);
    require_matches_reference(view_of(values, DType::kI64));
    for (uint64_t i = 0; i < count; i += 2) values[i] = high;
    require_matches_reference(view_of(values, DType::kI64));
    const std::vector<uint64_t> unsigned_values(count, std::numeric_limits<uint64_t>::max());
    require_matches_reference(view_of(unsigned_values, DType::kU64));
  }
  for (const DType dtype : kAllDTypes) {
    if (format::number_class(dtype) == format::NumberClass::kFloat) continue;
    INFO(format::to_string(dtype));
    require_matches_reference(view_of(random_bytes(dtype, 70000, 9), dtype));
  }
}

TEST_CASE("stats: empty tensors have no extremes and no mean", "[stats]") {
  TensorView view = dense_view(nullptr, DType::kF32, 0);
  const StatsResult result = compute(view);
  REQUIRE(result.stats.count == 0);
  REQUIRE(std::isnan(result.stats.min.as_f64()));
  REQUIRE(std::isnan(result.stats.mean));
  REQUIRE(result.stats.sum.as_f64() == 0);
  REQUIRE(result.sample_bytes == 0);
  REQUIRE(result.range_count == 0);
}

TEST_CASE("stats: more than 2^32 bytes are counted and hashed to the last", "[stats]") {
  constexpr uint64_t kCount = (uint64_t{1} << 30) + 1001;
  const Zeros memory(kCount * sizeof(float));
  auto* const values = static_cast<float*>(memory.data());
  const auto compute_all = [&] { return compute(dense_view(values, DType::kF32, kCount)).stats; };
  float& early = values[5];
  float& late = values[kCount - 1];
  early = 7;
  late = -3;
  const format::Stats stats = compute_all();
  CHECK(stats.count == kCount);
  CHECK(stats.pos_zero == kCount - 2);
  CHECK(stats.min.as_f64() == -3);
  CHECK(stats.max.as_f64() == 7);
  CHECK(stats.sum.as_f64() == 4);
  CHECK(stats.mean == 4.0 / static_cast<double>(kCount));
  std::swap(early, late);
  CHECK(compute_all().hash != stats.hash);
}

TEST_CASE("stats: unknown types are bytes with a hash", "[stats]") {
  const std::vector<uint8_t> bytes = {0, 1, 255, 0, 7};
  const format::Stats stats = compute(view_of(bytes, DType::kUnknown)).stats;
  REQUIRE(stats.count == 5);
  REQUIRE(stats.finite == 5);
  REQUIRE(stats.pos_zero == 2);
  REQUIRE(stats.positive == 3);
  REQUIRE(stats.sum == format::WideScalar{});
  REQUIRE(stats.hash == compute(view_of(bytes, DType::kI8)).stats.hash);
}

TEST_CASE("stats: samples are the raw bits at eight even positions, or all of up to 16",
          "[stats]") {
  std::vector<uint16_t> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
  for (const uint64_t count : {1u, 7u, 8u, 9u, 16u, 17u, 1000u}) {
    const StatsResult result = compute(dense_view(values.data(), DType::kU16, count));
    const uint64_t taken = count <= 16 ? count : 8;
    REQUIRE(result.sample_bytes == taken * 2);
    for (uint64_t i = 0; i < taken; ++i) {
      uint16_t sample = 0;
      std::memcpy(&sample, result.samples + i * 2, 2);
      REQUIRE(sample == (count <= 16 ? i : i * count / 8));
    }
  }
  const auto whole = random_bytes(DType::kC128, 8, 1);  // 16 real elements, the most bytes
  const StatsResult result = compute(view_of(whole, DType::kC128));
  REQUIRE(result.sample_bytes == whole.size());
  REQUIRE(std::memcmp(result.samples, whole.data(), whole.size()) == 0);
}

TEST_CASE("stats: a hash record holds hash and count alone", "[stats]") {
  const std::vector<float> values(100000, 1.0F);
  const auto view = view_of(values, DType::kF32);
  const StatsResult result = compute(view, format::Capture::kHash);
  format::Stats expected;
  expected.count = values.size();
  expected.hash = compute(view).stats.hash;
  REQUIRE(result.stats == expected);
  REQUIRE(result.range_count == 0);
  REQUIRE(result.sample_bytes == 0);
}

TEST_CASE("stats: views that cannot be walked are refused", "[stats]") {
  float value = 1;
  StatsResult result;
  const auto refuse = [&](const TensorView& view, StatusCode code) {
    REQUIRE(compute_on_cpu(view, format::Capture::kStats, result).code == code);
  };
  TensorView view = dense_view(&value, DType::kF32, 1);
  view.rank = format::kMaxDims + 1;
  refuse(view, StatusCode::kInvalidArgument);
  refuse(dense_view(nullptr, DType::kF32, 1), StatusCode::kInvalidArgument);
  view = dense_view(&value, DType::kF32, 1);
  view.shape[0] = -1;
  refuse(view, StatusCode::kInvalidArgument);
  view = dense_view(&value, DType::kF32, uint64_t{1} << 60);
  view.strides[0] = 0;
  refuse(view, StatusCode::kLimitExceeded);
  view.rank = 2;
  view.shape[0] = view.shape[1] = int64_t{1} << 40;
  refuse(view, StatusCode::kLimitExceeded);
}

}  // namespace
}  // namespace convtrace::stats::test
