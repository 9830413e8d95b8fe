// How far sums are from the truth: 113-bit arithmetic of every element by itself.

#include <fstream>
#include <map>
#include <sstream>

#include "cupti/stats/tile/tiling.h"
#include "tests/unit/cupti/stats/distributions.h"
#include "tests/unit/cupti/stats/replayed_launch.h"
#include "tests/unit/cupti/stats/sketched.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

constexpr uint64_t kMillion = uint64_t{1} << 20;

/// Largest relative errors: of a sum and a sum of magnitudes over the latter.
struct Errors {
  double sum = 0, l1 = 0, l2 = 0, std = 0;

  /// @param has_rounded_sums  sums are floating numbers: those of integers are exact.
  void add(const format::Stats& got, const format::Stats& want, bool has_rounded_sums) {
    const auto take = [](double& most, double a, double b, double scale) {
      if (scale > 0) most = std::max(most, std::fabs(a - b) / scale);
    };
    if (has_rounded_sums) {
      const double l1_of_want = want.l1.as_f64();
      take(sum, got.sum.as_f64(), want.sum.as_f64(), l1_of_want);
      take(l1, got.l1.as_f64(), l1_of_want, l1_of_want);
    }
    take(l2, got.l2, want.l2, want.l2);
    take(std, got.std, want.std, want.std);
  }
};

/// Rows of the table in ADR 0006, by the name of the type.
std::map<std::string, Errors> documented_errors() {
  std::ifstream page(CONVTRACE_ROOT "/docs/adr/0006-equal-bits-everywhere.md");
  std::map<std::string, Errors> rows;
  for (std::string line; std::getline(page, line);) {
    std::ranges::replace(line, '|', '\t');
    std::istringstream cells(line);
    std::string name;
    Errors row;
    std::getline(std::getline(cells, name, '\t'), name, '\t');
    if (line.starts_with('\t') && cells >> row.sum >> row.l1 >> row.l2 >> row.std)
      rows[name.substr(1, name.size() - 2)] = row;
  }
  return rows;
}

constexpr uint64_t kChunkBytes = kChunkGroups * kRowBytes;
constexpr uint64_t kShort = 262'152;  ///< several tiles and ranges
constexpr uint64_t kLong = kThreads * kMinTileBytes + 8;
/// Lengths in bytes around every limit at which a tensor is cut: rows, chunks, tiles, ranges, a tile for
/// each lane of a merging warp, for each thread of its block.
constexpr uint64_t kLengths[] = {64,
                                 kRowBytes,
                                 kChunkBytes - 8,
                                 kChunkBytes + 8,
                                 kMinTileBytes - 8,
                                 kMinTileBytes,
                                 kMinTileBytes + 8,
                                 kMinTileBytes + kChunkBytes + 8,
                                 kMinRangeBytes + 8,
                                 kShort,
                                 kThreads / 2 * kMinTileBytes - 8,
                                 kThreads / 2 * kMinTileBytes + 8,
                                 kLong};

/// Calls `use(view)` with the tensor's beginnings of those lengths that it has.
template <typename T, typename Use>
void for_each_length(const std::vector<T>& values, DType dtype, Use use) {
  for (const uint64_t bytes : kLengths) {
    if (bytes > values.size() * sizeof(T)) continue;
    INFO(format::to_string(dtype) << ", " << bytes << " bytes");
    use(dense_view(values.data(), dtype, bytes / format::element_bytes(dtype)));
  }
}

/// All bits; values near the largest; values around zero.
std::vector<std::vector<uint8_t>> integers(DType dtype, uint64_t length) {
  std::vector<std::vector<uint8_t>> all;
  const uint32_t size = format::element_bytes(dtype);
  const bool has_sign = format::number_class(dtype) == format::NumberClass::kSigned;
  const uint64_t largest = UINT64_MAX >> (64 - 8 * size + (has_sign ? 1 : 0));
  all.push_back(random_bytes(dtype, length / size, 5));
  for (const bool large : {true, false}) {
    auto bytes = all[0];
    for (size_t i = 0; i < bytes.size(); i += size) {
      const uint64_t value = large ? largest - bytes[i] % 100 : bytes[i] % 5 - (has_sign ? 2 : 0);
      std::memcpy(&bytes[i], &value, size);
    }
    all.push_back(std::move(bytes));
  }
  return all;
}

TEST_CASE("stats: sums are as near the truth as ADR 0006 says", "[stats][accuracy]") {
  std::map<std::string, Errors> found;
  const auto judge = [&](const TensorView& view) {
    const bool is_float = format::number_class(view.dtype) == format::NumberClass::kFloat;
    const format::Stats want = require_matches_reference(view);
    found[is_float ? std::string(format::to_string(view.dtype)) : "integers"].add(
        compute(view).stats, want, is_float);
    if (view.dtype != DType::kF32) return;
    ReplayedLaunch launch({{view}}, Variant::kNarrow);
    launch.run();
    found["f32 in pairs"].add(launch.result(0).stats, want, true);
  };
  for (const auto& [name, sample] : kDistributions) {
    INFO(name);
    const uint64_t length = std::string_view(name).starts_with("mean 1") ? kLong : kShort;
    for_each_length(draw<double>(kShort / sizeof(double), sample), DType::kF64, judge);
    for_each_length(draw(length / sizeof(float), sample), DType::kF32, judge);
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const auto values = draw(length / sizeof(uint16_t), sample);
      for_each_length(shortened<uint16_t>(values, dtype), dtype, judge);
    }
    for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E8M0FNU})
      for_each_length(shortened<uint8_t>(draw(kShort, sample), dtype), dtype, judge);
  }
  for (const DType dtype : {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32,
                            DType::kU32, DType::kI64, DType::kU64}) {
    for (const auto& values : integers(dtype, dtype == DType::kI32 ? kLong : kShort))
      for_each_length(values, dtype, judge);
  }
  const auto documented = documented_errors();
  CHECK(documented.size() == found.size());
  for (const auto& [name, got] : found) {
    INFO("| " << name << " | " << got.sum << " | " << got.l1 << " | " << got.l2 << " | " << got.std
              << " |");
    REQUIRE(documented.contains(name));
    const Errors& said = documented.at(name);
    // Not larger than what is said, and what is said is not out of date.
    const auto holds = [](double error, double bound) {
      return error <= bound && error >= bound / 4;
    };
    CHECK(holds(got.sum, said.sum));
    CHECK(holds(got.l1, said.l1));
    CHECK(holds(got.l2, said.l2));
    CHECK(holds(got.std, said.std));
  }
}

TEST_CASE("stats: sums of a million values are near the truth", "[stats][accuracy]") {
  for (const auto& [name, sample] : kDistributions) {
    INFO(name);
    std::vector<float> values = draw(kMillion + 1, sample);
    require_matches_reference(view_of(values, DType::kF32));
    values.resize(kMillion / 4 + 1);  // the reference takes its time
    const std::vector<double> wide(values.begin(), values.end());
    require_matches_reference(view_of(wide, DType::kF64));
    for (const DType dtype : {DType::kBF16, DType::kF16})
      require_matches_reference(view_of(shortened<uint16_t>(values, dtype), dtype));
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
