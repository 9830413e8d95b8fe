#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>

#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/cpu/helper_threads.h"
#include "cupti/stats/finalize.h"
#include "cupti/stats/tile/dtype_decode.h"
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

/// Each tile of a dense tensor by itself.
std::vector<Partial> tiles_of(const TensorView& view) {
  Layout layout;
  REQUIRE(flatten(view, layout).ok());
  const Tiling tiling = make_tiling(layout.bytes());
  std::vector<Partial> tiles;
  for (uint32_t i = 0; i < tiling.tiles; ++i)
    tiles.push_back(cpu_tiles().front()(layout, tiling, i, false));
  return tiles;
}

/// Merges neighbours until one is left, in an order that `random` makes up.
Partial merged_at_random(std::vector<Partial> parts, std::mt19937_64& random) {
  while (parts.size() > 1) {
    const auto at = parts.begin() + static_cast<int64_t>(random() % (parts.size() - 1));
    *at = merge(*at, *(at + 1));
    parts.erase(at + 1);
  }
  return parts.front();
}

/// What is exact: everything but sums of floats, and what is divided. Of parts, a sketch would be
/// another one: it depends on indices.
format::Stats exact_part(const Partial& total, DType dtype) {
  format::Stats stats = finalize(total, dtype);
  if (format::number_class(dtype) == format::NumberClass::kFloat) stats.sum = stats.l1 = {};
  stats.l2 = stats.mean = stats.std = 0;
  stats.sketch = {};
  return stats;
}

void require_same_bits(const format::Stats& a, const format::Stats& b) {
  REQUIRE(convtrace::test::same_bits(a, b));
}

TEST_CASE("stats: tiles merged in any order give the same counts, extremes and sums",
          "[stats][same]") {
  std::mt19937_64 random(11);
  for (const DType dtype : kAllDTypes) {
    INFO(format::to_string(dtype));
    const auto bytes = random_bytes(dtype, 300'000 / format::element_bytes(dtype), 11);
    const auto tiles = tiles_of(view_of(bytes, dtype));
    REQUIRE(tiles.size() > 10);
    const format::Stats merged = exact_part(merged_at_random(tiles, random), dtype);
    for (int i = 0; i < 20; ++i)
      require_same_bits(exact_part(merged_at_random(tiles, random), dtype), merged);
  }
}

TEST_CASE("stats: a tensor cut anywhere gives the counts, extremes and sums of the whole",
          "[stats][same]") {
  constexpr uint64_t kCount = 30'000;
  std::mt19937_64 random(5);
  for (const DType dtype : kAllDTypes) {
    const auto bytes = random_bytes(dtype, kCount, 5);
    const auto exact = [&](std::vector<Partial> parts) {
      return exact_part(merged_at_random(std::move(parts), random), dtype);
    };
    const format::Stats whole = exact(tiles_of(view_of(bytes, dtype)));
    for (const uint64_t pieces : {2u, 3u, 17u}) {
      std::vector<uint64_t> cuts = {0, kCount};
      while (cuts.size() <= pieces) cuts.push_back(1 + random() % (kCount - 1));
      std::ranges::sort(cuts);
      INFO(format::to_string(dtype) << " in " << pieces << ", cut first at " << cuts[1]);
      std::vector<Partial> parts;
      for (size_t i = 1; i < cuts.size(); ++i) {
        const auto* first = bytes.data() + cuts[i - 1] * format::element_bytes(dtype);
        for (const Partial& tile : tiles_of(dense_view(first, dtype, cuts[i] - cuts[i - 1])))
          parts.push_back(tile);
      }
      require_same_bits(exact(parts), whole);
    }
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

void require_all_sets_agree(const TensorView& view) {
  Layout layout;
  REQUIRE(flatten(view, layout).ok());
  const Tiling tiling = make_tiling(layout.bytes());
  for (uint32_t tile = 0; tile < tiling.tiles; ++tile) {
    const Partial want = cpu_tiles().back()(layout, tiling, tile, false);
    for (const CpuTileFunction set : cpu_tiles()) {
      const Partial got = set(layout, tiling, tile, false);
      const DType dtype = view.dtype;
      REQUIRE(convtrace::test::same_bits(finalize(got, dtype), finalize(want, dtype)));
      REQUIRE(got.hash == want.hash);
    }
  }
}

TEST_CASE("stats: every instruction set gives the same bits", "[stats][same]") {
  if (cpu_tiles().size() == 1) WARN("one instruction set here: nothing to compare");
  for (const DType dtype : kAllDTypes) {
    for (const uint64_t count : {1u, 100u, 4096u, 5000u, 40000u, 300001u}) {
      INFO(format::to_string(dtype) << " x " << count);
      require_all_sets_agree(view_of(random_bytes(dtype, count, count), dtype));
      require_all_sets_agree(view_of(ordinary_bytes(dtype, count, count), dtype));
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
    for (const uint64_t bits : logical_elements(view))
      copy.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
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
  constexpr unsigned kModes[] = {
      0x9FC0,                          // flush to zero, subnormals as zero
      0x3F80, 0x5F80, 0x7F80, 0xFFC0,  // down, up, toward zero; all of it
      0x0000, 0x8040, 0x2000, 0x6000,  // exceptions trap: alone, flushing, down, toward zero
      0x1FBF,                          // all exceptions seen
  };
  for (const DType dtype : kAllDTypes) {
    // Any bits: NaNs that signal, squares out of range; beside many subnormals.
    auto bytes = random_bytes(dtype, 600'000 / format::element_bytes(dtype), 7);
    const uint32_t size = format::element_bytes(walked_dtype(dtype));
    for (size_t i = size - 1; size > 1 && i < bytes.size(); i += 64) bytes[i] = bytes[i - 1] = 0;
    const TensorView view = view_of(bytes, dtype);
    const StatsResult expected = compute(view);
    const unsigned saved = _mm_getcsr();
    for (const unsigned mode : kModes) {
      INFO(format::to_string(dtype) << ", MXCSR 0x" << std::hex << mode);
      StatsResult alone, shared;
      _mm_setcsr(mode);
      Status status = compute_on_cpu(view, format::Capture::kStats, alone);
      {
        HelperThreads helpers(2);  // which begin with the mode of the thread that starts them
        status =
            status.ok() ? compute_on_cpu(view, format::Capture::kStats, shared, &helpers) : status;
      }
      const unsigned after = _mm_getcsr();
      _mm_setcsr(saved);
      REQUIRE(status.ok());
      REQUIRE(after == mode);
      require_same(alone, expected);
      require_same(shared, expected);
    }
  }
}
#endif

}  // namespace
}  // namespace convtrace::stats::test
