#include <cmath>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/trace_builder.h"
#include "tools/diff/compare/compare.h"

namespace {

using namespace convtrace;
using diff::Apart;
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
    if (values.size() > format::kMaxWhole) return;  // the sketch stands for it
    const auto raw = std::as_bytes(std::span(values));
    samples.assign(raw.begin(), raw.end());
  }
  [[nodiscard]] diff::ValueView view() const { return {record, shape, samples}; }
};

Comparison compared(const Value& a, const Value& b) { return diff::compare(a.view(), b.view()); }
Apart apart(const Value& a, const Value& b) { return diff::measure(a.view(), b.view()); }

std::vector<float> ramp(size_t count, float by = 1) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = by * std::sin(static_cast<float>(i) * 0.7F);
  return values;
}

}  // namespace

TEST_CASE("compare: small tensors are held against each other element by element",
          "[diff][compare]") {
  const Apart found = apart(Value({1, 2, 3, 4}, DType::kF32), Value({4, 3, 2, 1}, DType::kF32));
  CHECK(found.rms == Approx(std::sqrt(20.0 / 30)));
  CHECK(found.norm == 0);
  CHECK(found.mean == 0);
  CHECK(found.size == Approx(std::sqrt(30.0)));
}

TEST_CASE("compare: of large ones the sketches tell how far they are apart", "[diff][compare]") {
  const std::vector<float> values = ramp(5000);
  std::vector<float> shifted = values;
  std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
  double squares = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += std::pow(static_cast<double>(values[i] - shifted[i]), 2);
    norm += std::pow(static_cast<double>(values[i]), 2);
  }
  const Apart found = apart(Value(values, DType::kF32), Value(shifted, DType::kF32));
  CHECK(found.rms == Approx(std::sqrt(squares / norm)).epsilon(0.6));
  CHECK(found.norm < 1e-9);
  CHECK(apart(Value(values, DType::kF32), Value(ramp(5000, 1.5F), DType::kF32)).norm ==
        Approx(1.0 / 3));
}

TEST_CASE("compare: sketches of any size subtract", "[diff][compare]") {
  const Value large(ramp(100, 3e38F), DType::kF32), small(ramp(100, 1e-30F), DType::kF32);
  CHECK(apart(large, small).rms == Approx(1).epsilon(0.6));
  const Value zeros(std::vector<float>(100, 0), DType::kF32);
  CHECK(apart(zeros, small).rms == Approx(1).epsilon(0.6));
  Value other = zeros;
  other.record.stats.hash ^= 1;  // -0 for +0
  CHECK(apart(zeros, other).rms == 0);
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

TEST_CASE("compare: integers are exact, even with equal statistics", "[diff][compare]") {
  const Value base({1, 2, 3}, DType::kI64);
  CHECK(compared(base, Value({1, 2, 4}, DType::kI64)).verdict == Class::kDiverged);
  Value cand = base;
  cand.record.stats.hash ^= 1;
  CHECK(compared(base, cand).verdict == Class::kDiverged);
}

TEST_CASE("compare: an input of another type or shape with equal numbers is told, not blamed",
          "[diff][compare]") {
  Value base({1, 2, 3, 4}, DType::kI64), cand({1, 2, 3, 4}, DType::kI32);
  base.record.stats.l1 = cand.record.stats.l1 = base.record.stats.sum =
      cand.record.stats.sum = {10, 0};
  CHECK(compared(base, cand).verdict == Class::kShapeOrDtypeMismatch);
  base.record.kind = cand.record.kind = diff::Role::kInput;
  const Comparison told = compared(base, cand);
  CHECK(told.verdict == Class::kOtherForm);
  CHECK(told.field == Field::kDType);
  Value other = cand;
  other.record.stats.sum = {11, 0};
  CHECK(compared(base, other).verdict == Class::kShapeOrDtypeMismatch);
  Value reshaped = base;
  reshaped.shape = {2, 2};
  CHECK(compared(base, reshaped).verdict == Class::kOtherForm);
  CHECK(compared(base, reshaped).field == Field::kShape);
}

TEST_CASE("compare: whole blocks may hold padding and are never blamed", "[diff][compare]") {
  Value base(ramp(16), DType::kF32), cand(ramp(32), DType::kF32);
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

TEST_CASE("compare: hashes of two versions say nothing of each other", "[diff][compare]") {
  const auto verdict = [](const Value& base, Value cand) {
    cand.record.hashed_anew = true;
    cand.record.stats.hash = base.record.stats.hash + 1;
    return compared(base, cand);
  };
  const Value same({1, 2, 3, 4}, DType::kF32), other({1, 2, 3, 5}, DType::kF32);
  const Comparison alike = verdict(same, same);
  CHECK(alike.verdict == Class::kWithinNoise);
  CHECK_FALSE(alike.bits_differ);
  CHECK_FALSE(alike.bits_known);
  CHECK(verdict(same, other).field == Field::kRms);
  CHECK(verdict(same, other).bits_differ);
  const Value integers({1, 2, 3, 4}, DType::kI32), others({1, 2, 3, 5}, DType::kI32);
  const Value moved({2, 1, 3, 4}, DType::kI32);
  CHECK(verdict(integers, integers).verdict == Class::kWithinNoise);
  CHECK_FALSE(verdict(integers, integers).bits_known);
  CHECK(verdict(integers, others).verdict == Class::kDiverged);
  CHECK(verdict(integers, moved).verdict == Class::kDiverged);
  Value hash_only = integers;
  hash_only.record.capture = format::Capture::kHash;
  CHECK(verdict(integers, hash_only).verdict == Class::kBitDifference);
  CHECK_FALSE(verdict(integers, hash_only).bits_differ);
}
