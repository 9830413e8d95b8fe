#include <algorithm>
#include <numeric>

#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/finalize.h"
#include "cupti/stats/kernels/fatbin.h"
#include "cupti/stats/tile/tiling.h"
#include "tests/unit/cupti/stats/replayed_launch.h"
#include "tests/unit/cupti/stats/unusual_patterns.h"
#include "tests/unit/cupti/stats/zeros.h"

namespace convtrace::stats::test {
namespace {

using format::Capture;
using format::DType;

void require_kernel_equals_cpu(const TensorView& view) {
  for (const Capture capture : {Capture::kStats, Capture::kHash}) {
    ReplayedLaunch launch({{view, capture}});
    launch.run();
    require_same(launch.result(0), compute(view, capture));
  }
}

TEST_CASE("kernel: its replay equals the CPU code for every type and size", "[stats][kernel]") {
  for (const DType dtype : kAllDTypes) {
    for (const uint64_t count : {1u, 2u, 3u, 31u, 64u, 1023u, 1025u, 4096u, 4097u, 50001u}) {
      INFO(format::to_string(dtype) << " x " << count);
      const auto bytes = random_bytes(dtype, count, count);
      require_kernel_equals_cpu(view_of(bytes, dtype));
    }
  }
  const auto bytes = random_bytes(DType::kUnknown, 777, 1);
  require_kernel_equals_cpu(view_of(bytes, DType::kUnknown));
}

/// Ordinary values; in each stretch some are of one kind that a chunk is searched for.
std::vector<uint8_t> with_unusual_values(DType dtype, uint64_t count, uint64_t stretch) {
  constexpr uint64_t kKinds = 6;
  const uint64_t size = format::element_bytes(dtype);
  std::vector<uint8_t> bytes = random_bytes(dtype, count, 5);
  for (uint64_t i = 0; i < count; ++i) {
    uint8_t* const first = &bytes[i * size];
    uint8_t& top = first[size - 1];  // sign, exponent
    const bool unusual = top % 8 == 0;
    const uint64_t kind = i / stretch % kKinds;
    top = static_cast<uint8_t>(0x3A + top % 4);
    if (!unusual) continue;
    std::fill_n(first, size, kind == 3 || kind == 4 ? 0xFF : 0);
    if (kind == 1) top = 0x80;  // -0, the least integer
    if (kind == 2) *first = 1;  // the least magnitude
    if (kind == 4) top = 0x7F;  // NaN, the largest integer
    if (kind != 5) continue;
    top = 0x7F;  // infinity, or the largest finite value one below
    if (size > 1) first[size - 2] = i % 2 == 0 ? 0x80 : 0x7F;
    if (i % 2 != 0) std::fill_n(first, size - std::min<uint64_t>(size, 2), 0xFF);
  }
  return bytes;
}

TEST_CASE("kernel: chunks with zeros, subnormals and values at a limit are as on the CPU",
          "[stats][kernel]") {
  for (const DType dtype : kAllDTypes) {
    const uint64_t size = format::element_bytes(dtype);
    const uint64_t chunks_of_all_threads = kChunkGroups * kRowBytes / size;
    for (const uint64_t stretch : {uint64_t{64}, chunks_of_all_threads}) {
      INFO(format::to_string(dtype) << ", stretches of " << stretch);
      const auto bytes = with_unusual_values(dtype, 100'000 / size, stretch);
      const TensorView view = view_of(bytes, dtype);
      require_kernel_equals_cpu(view);
      const format::Stats stats = compute(view, Capture::kStats).stats;
      const bool has_zero = dtype != DType::kF8E8M0FNU;
      CHECK((has_zero ? stats.pos_zero : stats.nan) > 100);
      CHECK(stats.count > stats.pos_zero + stats.nan);
    }
  }
}

TEST_CASE("kernel: tensors of one unusual kind are as on the CPU", "[stats][kernel]") {
  for (const DType dtype : kFloatDTypes) {
    for (const auto& pattern : unusual_patterns(dtype)) {
      for (const uint64_t count : {3u, 4097u, 10000u}) {
        INFO(format::to_string(dtype) << " 0x" << std::hex << pattern[0] << " ... x " << count);
        require_kernel_equals_cpu(view_of(repeated_bits(dtype, count, pattern), dtype));
      }
    }
  }
}

TEST_CASE("kernel: its replay equals the CPU code at every alignment", "[stats][kernel]") {
  for (const DType dtype : kAllDTypes) {
    const auto bytes = random_bytes(dtype, 3000, 4);
    std::vector<uint8_t> shifted(bytes.size() + 32);
    for (size_t offset = 0; offset < 17; ++offset) {
      INFO(format::to_string(dtype) << " at +" << offset);
      std::memcpy(shifted.data() + offset, bytes.data(), bytes.size());
      require_kernel_equals_cpu(dense_view(shifted.data() + offset, dtype, 3000));
    }
  }
}

TEST_CASE("kernel: its replay equals the CPU code with more than 64 tiles", "[stats][kernel]") {
  // Several tiles for each merging thread, larger tiles than the smallest, ranges.
  std::mt19937_64 random(8);
  std::normal_distribution<float> normal(1e3F, 1.0F);
  std::vector<float> values((40u << 20) / 4 + 5);
  for (auto& value : values) value = normal(random);
  values[77] = std::nanf("");
  require_kernel_equals_cpu(view_of(values, DType::kF32));
}

TEST_CASE("kernel: a tile behind 2^32 bytes and 2^32 elements is read where it lies",
          "[stats][kernel]") {
  constexpr uint64_t kCount = (uint64_t{1} << 32) + 70'001;
  const Zeros memory(kCount);
  auto* const values = static_cast<uint8_t*>(memory.data());
  const TensorView view = dense_view(values, DType::kU8, kCount);
  Layout layout;
  REQUIRE(flatten(view, layout).ok());
  const Tiling tiling = make_tiling(kCount);
  REQUIRE(tiling.tile_bytes() == 4u << 20);
  for (const uint64_t at : {uint64_t{1} << 32, kCount - 1}) values[at] = 7;
  ReplayedLaunch launch({{view}});
  const Partial got = launch.run_block(tiling.tiles - 1);
  const Partial want = cpu_tiles().front()(layout, tiling, tiling.tiles - 1, false);
  const format::Stats stats = finalize(got, DType::kU8);
  REQUIRE(stats == finalize(want, DType::kU8));
  REQUIRE(got.hash == want.hash);
  CHECK(stats.count == 70'001);
  CHECK(stats.sum.lo == 14);
}

TEST_CASE("kernel: tiles without a finite value need no shift", "[stats][kernel]") {
  std::vector<float> values(20000, std::nanf(""));
  require_kernel_equals_cpu(view_of(values, DType::kF32));
  values[9000] = 3.0F;
  values[19999] = 1e30F;
  require_kernel_equals_cpu(view_of(values, DType::kF32));
}

TEST_CASE("kernel: strides are walked as on the CPU", "[stats][kernel]") {
  std::vector<uint16_t> values(4 * 33 * 65);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7919);
  const auto check = [&](std::initializer_list<int64_t> shape,
                         std::initializer_list<int64_t> strides, size_t offset, DType dtype) {
    TensorView view{.data = values.data() + offset, .dtype = dtype};
    view.rank = static_cast<uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape);
    std::copy(strides.begin(), strides.end(), view.strides);
    require_kernel_equals_cpu(view);
  };
  check({4, 33, 65}, {33 * 65, 1, 33}, 0, DType::kF16);
  check({33, 65}, {-65, -1}, 33 * 65 - 1, DType::kBF16);
  check({7, 500}, {0, 3}, 1, DType::kI16);
  check({1000}, {2}, 0, DType::kC64);
}

TEST_CASE("kernel: neither the batch nor the order of blocks changes a bit", "[stats][kernel]") {
  const uint32_t tensors = GENERATE(64u, FewBatch::kMaxTensors, FewBatch::kMaxTensors + 1, 1000u);
  std::vector<std::vector<uint8_t>> data;
  std::vector<ReplayedLaunch::Input> inputs;
  for (uint32_t i = 0; i < tensors; ++i) {
    const DType dtype = kAllDTypes[i % std::size(kAllDTypes)];
    data.push_back(random_bytes(dtype, 1 + i % 64 * (i % 64) * 5, i));
    inputs.push_back({view_of(data.back(), dtype), i % 5 == 0 ? Capture::kHash : Capture::kStats});
  }
  ReplayedLaunch launch(inputs);
  std::vector<uint32_t> order(launch.blocks());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(2);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    launch.run(order);
    for (size_t i = 0; i < inputs.size(); ++i) {
      INFO(i);
      require_same(launch.result(i), compute(inputs[i].view, inputs[i].capture));
    }
  }
}

TEST_CASE("kernel: a batch and a log take what fits and refuse the next tensor",
          "[stats][kernel]") {
  const float value = 1;
  Layout small;
  REQUIRE(flatten(dense_view(&value, DType::kF32, 1), small).ok());
  const auto log = std::make_unique<Log>();
  log->places = 2 * log_places(kMaxTiles);
  const auto few_memory = std::make_unique<FewBatch>();
  BatchBuilder few(*few_memory, *log);
  for (uint32_t i = 0; i < FewBatch::kMaxTensors; ++i)
    REQUIRE(few.add(small, Capture::kStats, 0, 1));
  REQUIRE_FALSE(few.add(small, Capture::kStats, 0, 1));
  few.clear();  // the next launch goes on behind
  CHECK(few_memory->head.log == FewBatch::kMaxTensors * log_places(1) * sizeof(LogPlace));
  log->clear();
  const auto many_memory = std::make_unique<ManyBatch>();
  BatchBuilder many(*many_memory, *log);
  for (uint32_t i = 0; i < 1000; ++i) REQUIRE(many.add(small, Capture::kStats, 0, 1));

  Layout large = small;
  large.count = uint64_t{1} << 30;
  log->clear();
  BatchBuilder tiles(*many_memory, *log);
  REQUIRE(tiles.add(large, Capture::kStats, 0, 1));
  REQUIRE(tiles.add(large, Capture::kStats, 0, 1));
  REQUIRE_FALSE(tiles.add(small, Capture::kStats, 0, 1));
  REQUIRE(tiles.blocks() == 2 * kMaxTiles);
  CHECK(fold_of(*log, 1, 0).count == 1);
}

TEST_CASE("kernel: the embedded image is a fatbin", "[stats][kernel]") {
  const unsigned char kMagic[] = {0x50, 0xED, 0x55, 0xBA};  // 0xBA55ED50, fatbinary.h
  REQUIRE(std::memcmp(convtrace_stats_fatbin, kMagic, sizeof(kMagic)) == 0);
}

TEST_CASE("stats: floating sums are part of the trace format and never change a bit", "[stats]") {
  uint64_t state = 1;
  std::vector<double> values(100003);
  for (auto& value : values) {
    state = state * 6364136223846793005 + 1442695040888963407;
    value = static_cast<double>(static_cast<int64_t>(state) >> 20) / 3;
  }
  const format::Stats stats = compute(view_of(values, DType::kF64)).stats;
  REQUIRE(std::bit_cast<uint64_t>(stats.sum.as_f64()) == 0x42D1E61E8054EF94);
  REQUIRE(std::bit_cast<uint64_t>(stats.l2) == 0x42FE761668B2EDA5);
  REQUIRE(std::bit_cast<uint64_t>(stats.std) == 0x4278A8CADD23225C);
}

/// Values of both signs and of so many sizes that every addition rounds, but of f8; from a generator
/// that never changes.
std::vector<uint8_t> steady_values(DType dtype, uint64_t count) {
  const uint32_t size = format::element_bytes(dtype);
  std::vector<uint8_t> bytes(count * size);
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = 1664525 * state + 1013904223;
    bytes[i] = static_cast<uint8_t>(state >> 24);
    if (i % size == size - 1) bytes[i] = (bytes[i] & 0x80) | (0x30 + bytes[i] % 0x28);
  }
  return bytes;
}

TEST_CASE("stats: floating sums of short types and of pairs never change a bit", "[stats]") {
  struct Golden {
    DType dtype;
    Variant variant;
    uint64_t sum, l1, l2, std;
  };
  constexpr Golden kGolden[] = {
      {DType::kF32, Variant::kWide, 0xC3458BB579BCEB4E, 0x43ABFB89AB818ED3, 0x434EA3173759CCB1,
       0x42C8CD357803AE48},
      {DType::kF32, Variant::kNarrow, 0xC3458BB579BCEB8D, 0x43ABFB89AB818ECE, 0x434EA3173759CCAF,
       0x42C8CD357803AE46},
      {DType::kF16, Variant::kWide, 0xC0D3AA92E2000000, 0x413B97C8F5780000, 0x40C560B87A602A09,
       0x40414E42FCD05874},
      {DType::kBF16, Variant::kWide, 0xC3625DAD8954CC55, 0x43AB6A7AD1166108, 0x434E21F198223EA4,
       0x42C8647D9276C4FB},
      {DType::kF8E4M3FN, Variant::kWide, 0xC096CC4000000000, 0x4119E55C40000000, 0x409CFDB289FA56F5,
       0x40177813398FA9FD},
      {DType::kF8E5M2, Variant::kWide, 0xC0B1AFE000000000, 0x4139358FC0000000, 0x40C399A737F93628,
       0x403FBBE1FAB94E9B},
  };
  for (const Golden& want : kGolden) {
    const auto bytes = steady_values(want.dtype, 100'003);
    ReplayedLaunch launch({{view_of(bytes, want.dtype)}}, want.variant);
    launch.run();
    const format::Stats stats = launch.result(0).stats;
    const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
    INFO(format::to_string(want.dtype)
         << std::hex << ", 0x" << bits(stats.sum.as_f64()) << ", 0x" << bits(stats.l1.as_f64())
         << ", 0x" << bits(stats.l2) << ", 0x" << bits(stats.std));
    CHECK(bits(stats.sum.as_f64()) == want.sum);
    CHECK(bits(stats.l1.as_f64()) == want.l1);
    CHECK(bits(stats.l2) == want.l2);
    CHECK(bits(stats.std) == want.std);
  }
}

}  // namespace
}  // namespace convtrace::stats::test
