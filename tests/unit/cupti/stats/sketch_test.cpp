// Sketches of tensors: what they hold, the same wherever they are computed.

#include <limits>

#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/cpu/helper_threads.h"
#include "cupti/stats/finalize.h"
#include "tests/unit/cupti/stats/named_views.h"
#include "tests/unit/cupti/stats/replayed_launch.h"
#include "tests/unit/cupti/stats/sketched.h"
#include "tests/unit/cupti/stats/unusual_patterns.h"

namespace convtrace::stats::test {
namespace {

using format::DType;
using format::Sketch;

Sketch sketch_of(const TensorView& view) { return compute(view).stats.sketch; }

/// Any bits but those of exponents at the limits: finite, and of all sizes up to 2^10.
std::vector<uint8_t> finite_values(DType dtype, uint64_t count, uint64_t seed) {
  const uint32_t size = format::element_bytes(dtype);
  std::vector<uint8_t> bytes(count * size);
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t bits = random() & (UINT64_MAX >> (64 - 8 * size));
    if (!std::isfinite(static_cast<double>(decode(dtype, bits).value)) ||
        decode(dtype, bits).kind != Decoded::Kind::kFinite ||
        std::fabs(decode(dtype, bits).value) > 1024) {
      bits = float_bits(dtype).one;
    }
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

void require_same_sketch(const Sketch& a, const Sketch& b) {
  REQUIRE(a.exponent == b.exponent);
  REQUIRE(std::memcmp(&a.bucket, &b.bucket, sizeof a.bucket) == 0);
}

TEST_CASE("sketch: it is the sums of the format's buckets", "[stats][sketch]") {
  const auto places = plain_places(2 * 300'001);  // of f4e2m1fn two a byte
  for (const DType dtype : kFloatDTypes) {
    for (const uint64_t count : {17u, 100u, 511u, 513u, 2048u, 4095u, 4097u, 20'000u, 300'001u}) {
      INFO(format::to_string(dtype) << " x " << count);
      const auto bytes = finite_values(dtype, count, count);
      const TensorView view = view_of(bytes, dtype);
      const auto elements = logical_elements(view);
      std::array<long double, Sketch::kBuckets> want{};
      long double magnitudes = 0;
      for (uint64_t i = 0; i < elements.size(); ++i) {
        const long double value = decode(dtype, elements[i]).value;
        want[places[i].bucket] += places[i].sign * value;
        magnitudes += std::fabs(value);
      }
      const Buckets got = sums_of(sketch_of(view));
      for (size_t b = 0; b < got.size(); ++b) {
        INFO("bucket " << b << ": " << got[b]);
        REQUIRE(std::fabs(got[b] - want[b]) <= 1e-6L * magnitudes);
      }
    }
  }
}

TEST_CASE("sketch: an element alone is in its bucket with its sign", "[stats][sketch]") {
  constexpr uint64_t kCount = 10'000;
  const auto places = plain_places(kCount);
  std::vector<float> values(kCount);
  for (const uint64_t i : {0u, 1u, 17u, 130u, 511u, 512u, 4095u, 4096u, 9999u}) {
    INFO(i);
    values[i] = -3;
    Sketch want{.exponent = 2};
    want.bucket[places[i].bucket] = -0.75F * static_cast<float>(places[i].sign);
    require_same_sketch(sketch_of(view_of(values, DType::kF32)), want);
    values[i] = 0;
  }
}

TEST_CASE("sketch: every instruction set and the kernel's replay give the same bits",
          "[stats][sketch]") {
  for (const DType dtype : kFloatDTypes) {
    for (const uint64_t count : {17u, 100u, 1024u, 4096u, 5000u, 40'000u, 150'001u}) {
      for (const bool strange : {false, true}) {
        INFO(format::to_string(dtype) << " x " << count << (strange ? ", one NaN" : ""));
        auto bytes = finite_values(dtype, count, count);
        const uint64_t nan = float_bits(dtype).nan;
        if (strange) std::memcpy(bytes.data(), &nan, format::element_bytes(dtype));
        const TensorView view = view_of(bytes, dtype);
        Layout layout;
        REQUIRE(flatten(view, layout).ok());
        const Tiling tiling = make_tiling(layout.bytes());
        ReplayedLaunch wide({{view}}), narrow({{view}}, Variant::kNarrow);
        for (uint32_t tile = 0; tile < tiling.tiles; ++tile) {
          const Partial want = wide.run_block(tile);
          REQUIRE(std::ranges::equal(narrow.run_block(tile).sketch, want.sketch));
          for (const CpuTileFunction set : cpu_tiles())
            REQUIRE(std::ranges::equal(set(layout, tiling, tile, false).sketch, want.sketch));
        }
      }
    }
  }
}

TEST_CASE("sketch: layout, batch and threads change no bit", "[stats][sketch]") {
  constexpr int64_t kRows = 700, kColumns = 300;
  for (const DType dtype : kFloatDTypes) {
    INFO(format::to_string(dtype));
    const auto bytes = finite_values(dtype, kRows * kColumns, 5);
    TensorView columns{.data = bytes.data(), .dtype = dtype, .rank = 2};
    columns.shape[0] = columns.strides[1] = kColumns;
    columns.shape[1] = kRows;
    columns.strides[0] = 1;
    columns.strides[1] = kColumns;
    const NamedView named{"", dtype, {kColumns, kRows}, {1, kColumns}, 0};
    const auto dense = named.copy_of(bytes.data());
    const Sketch want = sketch_of(view_of(dense, dtype));
    CHECK(want != sketch_of(view_of(bytes, dtype)));
    require_same_sketch(sketch_of(columns), want);
    HelperThreads helpers(3);
    StatsResult shared;
    REQUIRE(compute_on_cpu(columns, format::Capture::kStats, shared, &helpers).ok());
    require_same_sketch(shared.stats.sketch, want);
    ReplayedLaunch launch({{view_of(bytes, dtype)}, {columns}, {view_of(dense, dtype)}});
    launch.run();
    require_same_sketch(launch.result(1).stats.sketch, want);
    require_same_sketch(launch.result(2).stats.sketch, want);
  }
}

TEST_CASE("sketch: sums of tensors have the sums of their sketches", "[stats][sketch]") {
  constexpr uint64_t kCount = 50'000;
  std::mt19937_64 random(9);
  std::vector<float> a(kCount), b(kCount), both(kCount), apart(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(random() % 2001) - 1000;
    b[i] = static_cast<float>(random() % 2001) - 1000;
    both[i] = a[i] + b[i];
    apart[i] = a[i] - b[i];
  }
  const Buckets of_a = sums_of(sketch_of(view_of(a, DType::kF32)));
  const Buckets of_b = sums_of(sketch_of(view_of(b, DType::kF32)));
  const Buckets of_both = sums_of(sketch_of(view_of(both, DType::kF32)));
  const Buckets of_difference = sums_of(sketch_of(view_of(apart, DType::kF32)));
  for (size_t i = 0; i < of_a.size(); ++i) {
    CHECK(of_a[i] + of_b[i] == of_both[i]);  // all of them are integers that f32 holds
    CHECK(of_a[i] - of_b[i] == of_difference[i]);
  }
  double squares = 0;
  for (const float value : apart)
    squares += static_cast<double>(value) * static_cast<double>(value);
  CHECK(length_of(of_difference) == Approx(std::sqrt(squares)).epsilon(0.5));
}

TEST_CASE("sketch: a small difference of large tensors is estimated", "[stats][sketch]") {
  constexpr uint64_t kCount = 200'000;
  std::mt19937_64 random(10);
  std::normal_distribution<float> normal;
  std::vector<float> a(kCount), b(kCount);
  double squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    a[i] = normal(random);
    b[i] = a[i] + 1e-3F * normal(random);
    const double apart = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares += apart * apart;
  }
  Buckets apart = sums_of(sketch_of(view_of(a, DType::kF32)));
  const Buckets of_b = sums_of(sketch_of(view_of(b, DType::kF32)));
  for (size_t i = 0; i < apart.size(); ++i) apart[i] -= of_b[i];
  CHECK(length_of(apart) == Approx(std::sqrt(squares)).epsilon(0.5));
}

TEST_CASE("sketch: equal values of different types have equal sketches but for rounding",
          "[stats][sketch]") {
  constexpr uint64_t kCount = 70'000;
  std::vector<uint16_t> narrow(kCount);
  std::vector<float> f32(kCount);
  std::vector<double> f64(kCount);
  std::mt19937_64 random(12);
  std::normal_distribution<float> normal;
  for (uint64_t i = 0; i < kCount; ++i) {
    narrow[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16);
    f32[i] = std::bit_cast<float>(uint32_t{narrow[i]} << 16);
    f64[i] = f32[i];
  }
  const Buckets want = sums_of(sketch_of(view_of(f64, DType::kF64)));
  const Buckets of_f32 = sums_of(sketch_of(view_of(f32, DType::kF32)));
  const Buckets of_bf16 = sums_of(sketch_of(view_of(narrow, DType::kBF16)));
  for (size_t i = 0; i < want.size(); ++i) {
    CHECK(std::fabs(of_f32[i] - want[i]) < 1e-6 * length_of(want));
    CHECK(std::fabs(of_bf16[i] - want[i]) < 1e-6 * length_of(want));
  }
}

TEST_CASE("sketch: what is not finite counts as zero", "[stats][sketch]") {
  for (const DType dtype : kFloatDTypes) {
    if (dtype == DType::kF4E2M1FN) continue;  // all of its values are finite
    for (const uint64_t count : {100u, 9000u, 70'000u}) {
      INFO(format::to_string(dtype) << " x " << count);
      const uint32_t size = format::element_bytes(dtype);
      auto with = finite_values(dtype, count, 4);
      auto without = with;
      const auto bits = float_bits(dtype);
      for (uint64_t i = 0; i < count; i += 1 + i % 700) {
        const uint64_t strange = i % 3 == 0   ? bits.nan
                                 : i % 3 == 1 ? bits.inf
                                              : bits.inf | bits.sign;
        std::memcpy(&with[i * size], &strange, size);
        std::memset(&without[i * size], 0, size);
      }
      require_same_sketch(sketch_of(view_of(with, dtype)), sketch_of(view_of(without, dtype)));
    }
  }
}

TEST_CASE("sketch: neither the largest nor the smallest values leave the range",
          "[stats][sketch]") {
  constexpr uint64_t kCount = 100'000;
  for (const DType dtype : kFloatDTypes) {
    const auto [nan, inf, largest, one, sign] = float_bits(dtype);
    for (const uint64_t bits : {largest | sign, largest, uint64_t{1}, uint64_t{3}}) {
      INFO(format::to_string(dtype) << " 0x" << std::hex << bits);
      const auto bytes = repeated_bits(dtype, kCount, {bits, 0, bits});
      const Sketch sketch = sketch_of(view_of(bytes, dtype));
      REQUIRE(sketch.is_known());
      const auto value = static_cast<double>(decode(dtype, bits).value);
      if (std::fabs(value) < 0x1p-90) continue;  // may be rounded when it is scaled
      int exponent = 0;
      const double fraction = std::frexp(std::fabs(value), &exponent);
      Buckets sums{};  // in units of the value: sums of f64 may be beyond f64
      for (size_t i = 0; i < sums.size(); ++i) {
        const auto bucket = static_cast<double>(sketch.bucket[i]);
        sums[i] = std::ldexp(bucket, sketch.exponent - exponent) / fraction;
      }
      const auto alike =
          std::ranges::count_if(logical_elements(view_of(bytes, dtype)), [&](uint64_t element) {
            return static_cast<double>(decode(dtype, element).value) == value;
          });
      CHECK(length_of(sums) == Approx(std::sqrt(static_cast<double>(alike))).epsilon(0.5));
    }
  }
}

TEST_CASE("sketch: the largest bucket is at least a half and less than one", "[stats][sketch]") {
  Partial total;
  total.counts.count = 100;
  const auto of = [&](double sum) {
    total.sketch[3] = -sum;
    total.sketch[5] = sum / 3;
    return finalize(total, DType::kF32).sketch;
  };
  CHECK(of(0x1p-32).bucket[3] == -0.5F);
  CHECK(of(0x1p-32).exponent == 1);
  CHECK(of(0x1p-32 * (1 - 0x1p-30)).bucket[3] == -0.5F);  // rounds to 1
  CHECK(of(0x1p-32 * (1 - 0x1p-30)).exponent == 1);
  CHECK(of(0x1.8p1000).bucket[3] == -0.75F);
  CHECK(of(0x1.8p1000).exponent == 1033);
  CHECK(of(0x1.8p1000).bucket[5] == 0.25F);
  CHECK(of(0) == Sketch{.exponent = 0});
  CHECK_FALSE(of(INFINITY).is_known());
}

TEST_CASE("sketch: floats of more than 16 elements have one, nothing else has", "[stats][sketch]") {
  for (const DType dtype : kAllDTypes) {
    INFO(format::to_string(dtype));
    const auto bytes = repeated_bits(dtype, 400, {0});
    const uint64_t parts = format::values_in_element(dtype);
    const bool is_float = format::number_class(dtype) == format::NumberClass::kFloat;
    const auto known = [&](uint64_t count, format::Capture capture = format::Capture::kStats) {
      return compute(dense_view(bytes.data(), dtype, count), capture).stats.sketch.is_known();
    };
    CHECK_FALSE(known(0));
    CHECK_FALSE(known(16 / parts));
    CHECK(known(16 / parts + 1) == is_float);
    CHECK_FALSE(known(400, format::Capture::kHash));
  }
  const std::vector<float> zeros(17);
  CHECK(sketch_of(view_of(zeros, DType::kF32)) == Sketch{.exponent = 0});
  CHECK_FALSE(sketch_of(view_of(zeros, DType::kUnknown)).is_known());
}

TEST_CASE("sketch: a complex tensor has that of its real view", "[stats][sketch]") {
  const auto bytes = finite_values(DType::kF32, 20'000, 6);
  require_same_sketch(sketch_of(view_of(bytes, DType::kC64)),
                      sketch_of(view_of(bytes, DType::kF32)));
}

}  // namespace
}  // namespace convtrace::stats::test
