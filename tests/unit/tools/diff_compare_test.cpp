#include <cmath>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/trace_builder.h"
#include "tools/diff/compare.h"

namespace {

using namespace convtrace;
using diff::Class;
using diff::Comparison;
using diff::Field;
using format::DType;

/// A record with everything a view of it borrows.
struct Value {
  diff::ValueRecord record;
  std::vector<uint64_t> shape;
  std::vector<std::byte> samples;

  Value(const std::vector<float>& values, DType dtype) : shape{values.size()} {
    record.dtype = dtype;
    record.has_shape = true;
    record.stats = test::stats_of(values);
    const auto raw = std::as_bytes(std::span(values));
    samples.assign(raw.begin(), raw.end());
  }
  [[nodiscard]] diff::ValueView view() const { return {record, shape, samples}; }
};

Comparison compared(const Value& a, const Value& b, const diff::NoiseBand* noise = nullptr) {
  return diff::compare(a.view(), b.view(), noise);
}

std::vector<float> ones_with(size_t count, float last) {
  std::vector<float> values(count, 1);
  values.back() = last;
  return values;
}

}  // namespace

TEST_CASE("compare: the tolerance of f32 is 16 eps of the field's scale", "[diff][compare]") {
  const Value base({1, 1, 1, 1}, DType::kF32);
  Value cand = base;
  cand.record.stats.hash ^= 1;
  cand.record.stats.mean = 1 + 0x1p-23 * 16 * 4;  // z = 4 with rms 1
  const Comparison c = compared(base, cand);
  CHECK(c.field == Field::kMean);
  CHECK(c.z == Approx(4));
  CHECK(c.tolerance == Approx(16 * 0x1p-23));
  CHECK(c.difference == Approx(64 * 0x1p-23));
  CHECK(c.verdict == Class::kSuspicious);
}

TEST_CASE("compare: class borders are z 1 and z 8", "[diff][compare]") {
  const Value base({1, 1, 1, 1}, DType::kF64);
  const auto at = [&](double z) {
    Value cand = base;
    cand.record.stats.hash ^= 1;
    cand.record.stats.max = format::Scalar::f64(1 + z * 16 * 0x1p-52);
    return compared(base, cand).verdict;
  };
  CHECK(at(1) == Class::kWithinNoise);
  CHECK(at(1.5) == Class::kSuspicious);
  CHECK(at(8) == Class::kSuspicious);
  CHECK(at(8.5) == Class::kDiverged);
}

TEST_CASE("compare: averaged fields of narrow dtypes get a tolerance that shrinks with the count",
          "[diff][compare]") {
  for (const size_t count : {size_t{16}, size_t{4096}, size_t{10000}}) {
    const Value base(std::vector<float>(count, 1), DType::kBF16);
    Value cand = base;
    cand.record.stats.hash ^= 1;
    cand.record.stats.mean = 1.5;
    const double averaging = std::sqrt(static_cast<double>(std::min<size_t>(count, 4096)));
    CHECK(compared(base, cand).tolerance == Approx(16 * 0x1p-7 / averaging));
    cand.record.stats.mean = 1;
    cand.record.stats.amax = format::Scalar::f64(1.25);
    CHECK(compared(base, cand).tolerance == Approx(16 * 0x1p-7 * 1.25));
  }
}

TEST_CASE("compare: samples find what the summary hides", "[diff][compare]") {
  const Comparison c = compared(Value({1, 2, 3, 4}, DType::kF32), Value({4, 3, 2, 1}, DType::kF32));
  CHECK(c.verdict == Class::kDiverged);
  CHECK(c.field == Field::kSamples);
  CHECK(c.difference == 3);
}

TEST_CASE("compare: counts of NaN and Inf are exact", "[diff][compare]") {
  const float nan = std::nanf(""), inf = HUGE_VALF;
  const auto verdict = [](std::vector<float> a, std::vector<float> b) {
    return compared(Value(a, DType::kF32), Value(b, DType::kF32)).verdict;
  };
  CHECK(verdict({1, 2, 3}, {1, 2, nan}) == Class::kNanBorn);
  CHECK(verdict({1, 2, inf}, {1, 2, 3}) == Class::kNanBorn);
  CHECK(verdict({1, nan, nan}, {1, 2, nan}) == Class::kDiverged);
  CHECK(verdict({1, 2, inf}, {1, 2, -inf}) == Class::kDiverged);
  CHECK(verdict({nan, nan}, {nan, nan}) == Class::kIdentical);
}

TEST_CASE("compare: values that are all NaN and differ in bits alone do not diverge",
          "[diff][compare]") {
  const Value base({std::nanf(""), std::nanf("")}, DType::kF32);
  Value cand = base;
  cand.record.stats.hash ^= 1;
  CHECK(compared(base, cand).verdict == Class::kWithinNoise);
}

TEST_CASE("compare: integers are exact, even with equal statistics", "[diff][compare]") {
  CHECK(compared(Value({1, 2, 3}, DType::kI64), Value({1, 2, 4}, DType::kI64)).verdict ==
        Class::kDiverged);
  const Value base({1, 2, 3}, DType::kI64);
  Value cand = base;
  cand.record.stats.hash ^= 1;
  CHECK(compared(base, cand).verdict == Class::kDiverged);
  diff::NoiseBand noise;
  noise.bits = true;
  CHECK(compared(base, cand, &noise).verdict == Class::kWithinNoise);
}

TEST_CASE("compare: whole blocks may hold padding and are never blamed", "[diff][compare]") {
  Value base(std::vector<float>(16, 1), DType::kF32), cand(ones_with(32, 9), DType::kF32);
  cand.record.extent = format::Extent::kBlock;
  CHECK(compared(base, cand).verdict == Class::kBitDifference);
  cand.record.dtype = base.record.dtype = DType::kI32;
  CHECK(compared(base, cand).verdict == Class::kBitDifference);
}

TEST_CASE("compare: a device that differs is no difference", "[diff][compare]") {
  const Value base({1, 2}, DType::kF32);
  Value cand = base;
  cand.record.device = {format::Device::Type::kCuda, 1};
  CHECK(compared(base, cand).verdict == Class::kIdentical);
}

TEST_CASE("compare: a noise band replaces the tolerance where it is wider", "[diff][compare]") {
  const Value base({1, 1, 1, 1}, DType::kF32);
  Value cand = base;
  cand.record.stats.hash ^= 1;
  cand.record.stats.mean = 1.5;
  diff::NoiseBand noise;
  noise.absolute[static_cast<size_t>(Field::kMean)] = 0.25;
  CHECK(compared(base, cand, &noise).z == Approx(2));
  noise.relative[static_cast<size_t>(Field::kMean)] = 0.5;
  CHECK(compared(base, cand, &noise).z == Approx(1));
  CHECK(compared(base, cand, &noise).verdict == Class::kWithinNoise);
}
