// f4e2m1fn and f8e8m0fnu: values to which others are rounded once, so coarsely that a difference of
// a few units is as large as they are.

#include <algorithm>
#include <cmath>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/compare/elements.h"

namespace convtrace {
namespace {

using diff::Verdict;
using format::DType;
using test::compared;
using test::Item;
using test::Run;

constexpr size_t kCount = 4096;
constexpr float kF4Values[] = {-6, -4, -3, -2, -1.5F, -1, -0.5F, 0, 0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

/// Every value of f4e2m1fn as often as others.
std::vector<float> f4_values() {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = kF4Values[i * 2654435761 / 977 % 16];
  return values;
}

std::vector<float> scales() {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i)
    values[i] = std::ldexp(1.0F, static_cast<int>(i * 2654435761 / 977 % 5) - 9);
  return values;
}

/// A module that casts what it is given. @param unequal  the share of the input by which it differs.
Run cast(DType dtype, std::vector<float> values, float unequal = 0) {
  Run made;
  std::vector<float> given(kCount, 1 + unequal);
  made.add({.scope = "cast", .slot = "input:0", .values = std::move(given)});
  made.add({.scope = "cast", .slot = "output:0", .values = std::move(values), .dtype = dtype});
  return made;
}

TEST_CASE("packed: values one step further are rounding, as long as they are few", "[diff]") {
  std::vector<float> few = f4_values(), all = few;
  for (size_t i = 0; i < kCount; ++i) {
    const float next = all[i] == 6 ? 4 : *std::ranges::upper_bound(kF4Values, all[i]);
    all[i] = next;
    if (i % 50 == 0) few[i] = next;
  }
  const Run base = cast(DType::kF4E2M1FN, f4_values());
  CHECK(compared(base, cast(DType::kF4E2M1FN, few)).verdict == Verdict::kSame);
  CHECK(compared(base, cast(DType::kF4E2M1FN, few, 1e-7F)).verdict == Verdict::kSame);
  CHECK(compared(base, cast(DType::kF4E2M1FN, all)).verdict == Verdict::kDiverged);
}

TEST_CASE("packed: a permutation, another sign and another scale of 4-bit values diverge",
          "[diff]") {
  const Run base = cast(DType::kF4E2M1FN, f4_values());
  std::vector<float> rotated = f4_values(), negative = rotated, halved = rotated;
  std::rotate(rotated.begin(), rotated.begin() + 16, rotated.end());
  for (size_t i = 0; i < kCount; ++i) {
    if (i % 8 == 0) negative[i] = -negative[i];
    if (std::fabs(halved[i]) == 4 || std::fabs(halved[i]) == 2) halved[i] /= 2;
  }
  for (const auto& values : {rotated, negative, halved}) {
    const diff::DiffResult result = compared(base, cast(DType::kF4E2M1FN, values));
    CHECK(result.verdict == Verdict::kDiverged);
    CHECK(test::where(result).slot == "output:0");
  }
}

TEST_CASE("packed: one scale of many that is doubled is rounding, all of them are not", "[diff]") {
  std::vector<float> one = scales(), all = one;
  one[77] *= 2;
  for (float& value : all) value *= 2;
  const Run base = cast(DType::kF8E8M0FNU, scales());
  CHECK(compared(base, cast(DType::kF8E8M0FNU, one)).verdict == Verdict::kSame);
  CHECK(compared(base, cast(DType::kF8E8M0FNU, all)).verdict == Verdict::kDiverged);
}

TEST_CASE("packed: what is computed of 4-bit values is held against its own type", "[diff]") {
  const auto run = [](float error) {
    Run made;
    made.add({.scope = "mm", .slot = "input:0", .values = f4_values(), .dtype = DType::kF4E2M1FN});
    std::vector<float> product = f4_values();
    for (size_t i = 0; i < kCount; ++i) product[i] *= i % 2 == 0 ? 1 + error : 1;
    made.add({.scope = "mm", .slot = "output:0", .values = product});
    return made;
  };
  CHECK(compared(run(0), run(1e-6F)).verdict == Verdict::kSame);
  CHECK(compared(run(0), run(1e-2F)).verdict == Verdict::kDiverged);
}

TEST_CASE("packed: units in the last place are steps between neighbouring values", "[diff]") {
  const auto ulps = [](DType dtype, uint8_t a, uint8_t b) {
    diff::ElementComparer comparer(dtype);
    comparer.add(std::as_bytes(std::span(&a, 1)), std::as_bytes(std::span(&b, 1)));
    return comparer.report().ulps;
  };
  using Ulps = std::array<uint64_t, 7>;
  CHECK(ulps(DType::kF4E2M1FN, 1, 9) == Ulps{0, 0, 1});      // 0.5 and -0.5
  CHECK(ulps(DType::kF4E2M1FN, 6, 7) == Ulps{0, 1});         // 4 and 6
  CHECK(ulps(DType::kF8E8M0FNU, 0x7F, 0x80) == Ulps{0, 1});  // 1 and 2
  CHECK(ulps(DType::kF8E8M0FNU, 0, 0xFE) == Ulps{0, 0, 0, 0, 1});
}

}  // namespace
}  // namespace convtrace
