// The variant for GPUs with slow f64 (narrow_sums.h), by the kernel's host replay.

#include "cupti/stats/thread/narrow_sums.h"
#include "tests/unit/cupti/stats/distributions.h"
#include "tests/unit/cupti/stats/replayed_launch.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

constexpr double kTolerance = 1e-9;  // 1e-6 is promised

format::Stats narrow(const TensorView& view) {
  ReplayedLaunch launch({{view}}, Variant::kNarrow);
  launch.run();
  const StatsResult result = launch.result(0);
  REQUIRE(result.variant == 1);
  return result.stats;
}

void require_near(const char* what, double got, double want, double scale) {
  INFO(what << ": got " << got << ", want " << want);
  REQUIRE(std::fabs(got - want) <= kTolerance * scale);
}

/// Everything but floating sums as the reference variant has it, those near the truth.
void require_near_reference(const TensorView& view) {
  const format::Stats got = narrow(view);
  format::Stats exact = compute(view).stats;
  const format::Stats want = reference_stats(view);
  const double scale = mean_magnitude(view);
  require_near("sum", got.sum.as_f64(), want.sum.as_f64(),
               scale * static_cast<double>(want.finite));
  require_near("l1", got.l1.as_f64(), want.l1.as_f64(), want.l1.as_f64());
  require_near("l2", got.l2, want.l2, want.l2);
  require_near("mean", got.mean, want.mean, scale);
  require_near("std", got.std, want.std, want.std);
  exact.sum = got.sum, exact.l1 = got.l1;
  exact.l2 = got.l2, exact.mean = got.mean, exact.std = got.std;
  REQUIRE(convtrace::test::same_bits(got, exact));
}

TEST_CASE("variant: sums of a million values are near the truth", "[stats][variant]") {
  for (const auto& [name, sample] : kDistributions) {
    INFO(name);
    require_near_reference(view_of(draw((1u << 20) + 1, sample), DType::kF32));
  }
}

TEST_CASE("variant: f32 and its complex numbers, at sizes around a group, a row and a tile",
          "[stats][variant]") {
  for (const DType dtype : {DType::kF32, DType::kC64}) {
    for (const uint64_t count : {1u, 3u, 31u, 257u, 1025u, 16'385u, 50'001u}) {
      INFO(format::to_string(dtype) << " x " << count);
      const auto bytes = random_bytes(dtype, count, count);
      require_near_reference(view_of(bytes, dtype));
    }
  }
}

TEST_CASE("variant: values from the smallest to the largest f32, in any order",
          "[stats][variant]") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  const Draw steps = [power = -149](auto&) mutable {
    power = power == 127 ? -149 : power + 1;
    return std::ldexp(1.0F, power);
  };
  require_near_reference(view_of(draw(20'000, steps), DType::kF32));
  require_near_reference(view_of(std::vector<float>(3000, tiny), DType::kF32));
  require_near_reference(view_of(std::vector<float>(3000, -huge), DType::kF32));
  std::vector<float> values(20'000, 1.0F);
  for (const size_t at : {size_t{0}, size_t{10'000}, values.size() - 1}) {
    std::vector<float> one_huge = values;
    one_huge[at] = huge;
    require_near_reference(view_of(one_huge, DType::kF32));
  }
  values[0] = 0;  // the shift says nothing of the scale
  values[7] = std::nanf("");
  values[9] = -INFINITY;
  require_near_reference(view_of(values, DType::kF32));
}

TEST_CASE("variant: values that differ in their last bit have their deviation",
          "[stats][variant]") {
  std::vector<float> values(10'000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::nextafter(1e20F, i % 3 == 0 ? 2e20F : 0.0F);
  require_near_reference(view_of(values, DType::kF32));
}

TEST_CASE("variant: the order of blocks changes no bit", "[stats][variant]") {
  const auto values = draw(300'000, normal);
  ReplayedLaunch launch({{view_of(values, DType::kF32)}}, Variant::kNarrow);
  launch.run();
  const StatsResult first = launch.result(0);
  std::vector<uint32_t> backwards(launch.blocks());
  for (uint32_t i = 0; i < backwards.size(); ++i) backwards[i] = launch.blocks() - 1 - i;
  launch.run(backwards);
  require_same(launch.result(0), first);
}

TEST_CASE("variant: other types are summed as ever", "[stats][variant]") {
  for (const DType dtype :
       {DType::kF64, DType::kC128, DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF4E2M1FN,
        DType::kF8E8M0FNU, DType::kI8, DType::kI64, DType::kBool}) {
    const auto bytes = random_bytes(dtype, 5000, 3);
    ReplayedLaunch launch({{view_of(bytes, dtype)}}, Variant::kNarrow);
    launch.run();
    require_same(launch.result(0), compute(view_of(bytes, dtype)));
  }
}

}  // namespace
}  // namespace convtrace::stats::test
