#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>

#include "cupti/stats/cpu_tile.h"
#include "cupti/stats/finalize.h"
#include "tests/unit/cupti/stats/named_views.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

TEST_CASE("stats: a hundred repetitions give the same bits", "[stats][same]") {
  const auto bytes = random_bytes(DType::kF32, 300000, 5);
  const StatsResult first = compute(view_of(bytes, DType::kF32));
  for (int i = 0; i < 100; ++i) require_same(compute(view_of(bytes, DType::kF32)), first);
}

TEST_CASE("stats: the parts of any split add up to the whole", "[stats][same]") {
  std::vector<int32_t> values(50'000);
  std::mt19937_64 random(5);
  for (auto& value : values) value = static_cast<int32_t>(random() % 2001) - 1000;
  const format::Stats whole = compute(view_of(values, format::DType::kI32)).stats;
  const auto part = [&](size_t from, size_t to) {
    return compute(dense_view(values.data() + from, format::DType::kI32, to - from)).stats;
  };
  for (const size_t at : {size_t{1}, size_t{31}, size_t{1024}, size_t{4097}, size_t{49'999}}) {
    CAPTURE(at);
    const format::Stats a = part(0, at), b = part(at, values.size());
    CHECK(a.positive + b.positive == whole.positive);
    CHECK(a.negative + b.negative == whole.negative);
    CHECK(a.pos_zero + b.pos_zero == whole.pos_zero);
    CHECK(std::min(a.min.as_i64(), b.min.as_i64()) == whole.min.as_i64());
    CHECK(std::max(a.max.as_i64(), b.max.as_i64()) == whole.max.as_i64());
    CHECK(std::max(a.amax.as_u64(), b.amax.as_u64()) == whole.amax.as_u64());
    CHECK(a.sum.lo + b.sum.lo == whole.sum.lo);
    CHECK(a.l1.lo + b.l1.lo == whole.l1.lo);
  }
}

TEST_CASE("stats: alignment of the data changes nothing", "[stats][same]") {
  for (const DType dtype : kAllDTypes) {
    const auto bytes = random_bytes(dtype, 9001, 6);
    const StatsResult aligned = compute(view_of(bytes, dtype));
    std::vector<uint8_t> shifted(bytes.size() + 64);
    for (size_t offset = 0; offset < 33; ++offset) {
      INFO(format::to_string(dtype) << " at +" << offset);
      std::memcpy(shifted.data() + offset, bytes.data(), bytes.size());
      require_same(compute(dense_view(shifted.data() + offset, dtype, 9001)), aligned);
    }
  }
}

TEST_CASE("stats: every instruction set gives the same bits", "[stats][same]") {
  if (cpu_tiles().size() == 1) WARN("one instruction set here: nothing to compare");
  for (const CpuTileFunction set : cpu_tiles()) {
    for (const DType dtype : kAllDTypes) {
      for (const uint64_t count : {1u, 100u, 4096u, 5000u, 40000u, 300001u}) {
        INFO(format::to_string(dtype) << " x " << count);
        const auto bytes = random_bytes(dtype, count, count);
        Layout layout;
        REQUIRE(flatten(view_of(bytes, dtype), layout).ok());
        const Tiling tiling = make_tiling(layout.bytes());
        for (uint32_t tile = 0; tile < tiling.tiles; ++tile) {
          const Partial a = cpu_tiles().back()(layout, tiling, tile, false);
          const Partial b = set(layout, tiling, tile, false);
          const format::Stats stats_a = finalize(a, dtype, tiling);
          const format::Stats stats_b = finalize(b, dtype, tiling);
          REQUIRE(std::memcmp(&stats_a, &stats_b, sizeof(stats_a)) == 0);
        }
      }
    }
  }
}

TEST_CASE("stats: strides are walked in logical order", "[stats][same]") {
  constexpr int64_t kN = 3, kC = 5, kH = 17, kW = 70;
  std::vector<float> source(kN * kC * kH * kW);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i % 977) - 400.5F;
  TensorView view{.data = source.data(), .dtype = DType::kF32, .rank = 4};
  const int64_t kShape[] = {kN, kC, kH, kW};
  std::copy_n(kShape, 4, view.shape);
  const auto check = [&](std::initializer_list<int64_t> strides, int64_t offset) {
    view.data = source.data() + offset;
    std::copy(strides.begin(), strides.end(), view.strides);
    std::vector<float> copy;
    for (const uint64_t bits : logical_elements(view)) {
      copy.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    require_same(compute(view), compute(view_of(copy, DType::kF32)));
  };
  check({kC * kH * kW, kH * kW, kW, 1}, 0);  // contiguous
  check({kC * kH * kW, 1, kC * kW, kC}, 0);  // channels-last
  check({0, 0, 0, 0}, 11);                   // one element everywhere
  check({0, kH * kW, kW, 1}, 0);             // expanded batch
  check({-kC * kH * kW, kH * kW, -kW, -1},   // flipped three ways
        (kN - 1) * kC * kH * kW + (kH - 1) * kW + kW - 1);
  check({1, kN, kN * kC, kN * kC * kH}, 0);  // column-major
}

TEST_CASE("stats: a view has the numbers of its dense copy", "[stats][same]") {
  const auto view = GENERATE(from_range(named_views()));
  CAPTURE(view.name);
  const auto buffer = random_bytes(DType::kU8, kViewBufferBytes, 21);
  const auto copy = view.copy_of(buffer.data());
  require_same(compute(view.at(buffer.data())), compute(view_of(copy, view.dtype)));
}

TEST_CASE("stats: complex tensors are their real view", "[stats][same]") {
  const auto bytes = random_bytes(DType::kC64, 1000, 12);
  StatsResult complex_result = compute(view_of(bytes, DType::kC64));
  require_same(complex_result, compute(view_of(bytes, DType::kF32)));
  // Every second complex element: pairs stay together.
  TensorView view = dense_view(bytes.data(), DType::kC64, 500);
  view.strides[0] = 2;
  std::vector<uint8_t> copy;
  for (size_t i = 0; i < 500; ++i) {
    copy.insert(copy.end(), bytes.begin() + static_cast<int64_t>(i * 16),
                bytes.begin() + static_cast<int64_t>(i * 16 + 8));
  }
  require_same(compute(view), compute(view_of(copy, DType::kF32)));
}

TEST_CASE("stats: extents of one, scalars and rank do not matter", "[stats][same]") {
  std::vector<double> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * 0.1;
  TensorView view{.data = values.data(), .dtype = DType::kF64, .rank = 5};
  const int64_t kShape[] = {1, 4, 1, 6, 1};
  const int64_t kStrides[] = {999, 6, -3, 1, 7};
  std::copy_n(kShape, 5, view.shape);
  std::copy_n(kStrides, 5, view.strides);
  require_same(compute(view), compute(view_of(values, DType::kF64)));
  const TensorView scalar{.data = values.data(), .dtype = DType::kF64};
  require_same(compute(scalar), compute(dense_view(values.data(), DType::kF64, 1)));
}

#if defined(__x86_64__)
TEST_CASE("stats: the host's floating-point modes neither matter nor change", "[stats][same]") {
  auto bytes = random_bytes(DType::kF32, 20000, 7);
  for (size_t i = 3; i < bytes.size(); i += 64) bytes[i] = bytes[i - 1] = 0;  // many subnormals
  const StatsResult expected = compute(view_of(bytes, DType::kF32));
  const unsigned saved = _mm_getcsr();
  for (const unsigned mode : {0x8040u, 0x2000u, 0x4000u, 0x6000u, 0xE040u}) {
    _mm_setcsr(0x1F80 | mode);
    StatsResult result;
    const Status status =
        compute_on_cpu(view_of(bytes, DType::kF32), format::Capture::kStats, result);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    REQUIRE(status.ok());
    REQUIRE(after == (0x1F80 | mode));
    require_same(result, expected);
  }
}
#endif

}  // namespace
}  // namespace convtrace::stats::test
