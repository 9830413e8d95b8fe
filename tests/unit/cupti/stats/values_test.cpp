#include <limits>

#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

/// One element at a time: its class, order and value against the field-by-field decoder.
template <typename Bits>
void require_every_value(DType dtype) {
  for (uint32_t pattern = 0; pattern <= std::numeric_limits<Bits>::max(); ++pattern) {
    const auto bits = static_cast<Bits>(pattern);
    INFO(format::to_string(dtype) << " 0x" << std::hex << pattern);
    const format::Stats stats = compute(dense_view(&bits, dtype, 1)).stats;
    const Decoded want = decode(dtype, pattern);
    const bool finite = want.kind == Decoded::Kind::kFinite;
    const bool zero = finite && want.value == 0;
    const bool nan = want.kind == Decoded::Kind::kNan;
    const bool sound = stats.finite == (finite ? 1 : 0) && stats.nan == (nan ? 1 : 0) &&
                       stats.positive == (!nan && !zero && !want.negative ? 1 : 0) &&
                       stats.negative == (!nan && !zero && want.negative ? 1 : 0) &&
                       stats.pos_zero == (zero && !want.negative ? 1 : 0) &&
                       stats.neg_zero == (zero && want.negative ? 1 : 0) &&
                       stats.subnormal == (want.subnormal ? 1 : 0) &&
                       stats.saturated == (want.largest ? 1 : 0);
    if (!sound) FAIL("wrong class");
    if (finite && stats.min != format::Scalar::f64(static_cast<double>(want.value)))
      FAIL("wrong value " << stats.min.as_f64());
    if (finite && stats.mean != static_cast<double>(want.value)) FAIL("wrong mean");
  }
  SUCCEED();
}

TEST_CASE("stats: every f16 pattern has the class and value of its fields", "[stats]") {
  require_every_value<uint16_t>(DType::kF16);
}
TEST_CASE("stats: every bf16 pattern has the class and value of its fields", "[stats]") {
  require_every_value<uint16_t>(DType::kBF16);
}
TEST_CASE("stats: every f8e4m3fn pattern has the class and value of its fields", "[stats]") {
  require_every_value<uint8_t>(DType::kF8E4M3FN);
}
TEST_CASE("stats: every f8e5m2 pattern has the class and value of its fields", "[stats]") {
  require_every_value<uint8_t>(DType::kF8E5M2);
}

TEST_CASE("stats: every f8e8m0fnu pattern is its power of two, and the last one NaN", "[stats]") {
  require_every_value<uint8_t>(DType::kF8E8M0FNU);
}
TEST_CASE("stats: a byte of f4e2m1fn is two values, the one in its lower half first", "[stats]") {
  const double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint32_t pattern = 0; pattern < 256; ++pattern) {
    INFO(pattern);
    const auto byte = static_cast<uint8_t>(pattern);
    const TensorView view = dense_view(&byte, DType::kF4E2M1FN, 1);
    require_matches_reference(view);
    const StatsResult result = compute(view);
    const double low = kMagnitudes[pattern & 7] * ((pattern & 8) != 0 ? -1 : 1);
    const double high = kMagnitudes[pattern >> 4 & 7] * ((pattern & 128) != 0 ? -1 : 1);
    REQUIRE(result.stats.count == 2);
    REQUIRE(result.stats.sum.as_f64() == low + high);
    REQUIRE(result.sample_bytes == 2);
    REQUIRE(result.samples[0] == static_cast<std::byte>(pattern & 15));
    REQUIRE(result.samples[1] == static_cast<std::byte>(pattern >> 4));
  }
}

TEST_CASE("stats: all patterns of a narrow type in one tensor match the reference", "[stats]") {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kI16, DType::kU16}) {
    std::vector<uint16_t> values(65536);
    for (uint32_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
    require_matches_reference(view_of(values, dtype));
  }
  for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF4E2M1FN, DType::kF8E8M0FNU,
                            DType::kI8, DType::kU8, DType::kBool}) {
    std::vector<uint8_t> values(256);
    for (uint32_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i);
    require_matches_reference(view_of(values, dtype));
  }
}

TEST_CASE("stats: random patterns of every type match the reference at every size", "[stats]") {
  for (const DType dtype : kAllDTypes) {
    for (const uint64_t count :
         {0u, 1u, 2u, 7u, 8u, 9u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 5000u}) {
      INFO(format::to_string(dtype) << " x " << count);
      // Exponents of random f64 and c128 overflow any sum of squares: keep those moderate.
      auto bytes = random_bytes(dtype, count, count + 1);
      if (dtype == DType::kF64 || dtype == DType::kC128) {
        for (size_t i = 7; i < bytes.size(); i += 8) bytes[i] = i % 64 == 7 ? 0xBF : 0x3F;
      }
      require_matches_reference(view_of(bytes, dtype));
    }
  }
}

}  // namespace
}  // namespace convtrace::stats::test
