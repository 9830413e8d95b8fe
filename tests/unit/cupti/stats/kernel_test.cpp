// The statistics kernel's own source on the host: what its threads exchange, which the replay does not
// show. A few types, since each takes a while to compile: with and without a shift, in one pass and
// in two, wide and narrow integers, bytes.

#include <algorithm>
#include <numeric>
#include <random>

#include "cupti/stats/tile/dtype_decode.h"

#undef CONVTRACE_WALKED_DTYPES
#define CONVTRACE_WALKED_DTYPES(X) X(kF64) X(kF32) X(kBF16) X(kI64) X(kI32) X(kU8)

#include "cupti/stats/kernels/block.h"
#include "cupti/stats/thread/thread_sketch.h"
#include "cupti/stats/tile/merge.h"
#include "tests/unit/cupti/stats/named_views.h"
#include "tests/unit/cupti/stats/replayed_launch.h"
#include "tests/unit/cupti/stats/support.h"

#include "tests/unit/cupti/stats/cuda_emulation.h"

namespace convtrace::stats {
inline void load_shared_keys() {}  // the host's hash has none
}  // namespace convtrace::stats

#include "cupti/stats/kernels/stats_kernel.cu"

namespace convtrace::stats::test {
namespace {

using format::Capture;
using format::DType;

template <unsigned Threads, auto Kernel, typename Param>
bool emulate(const Param& param, std::span<const uint32_t> blocks) {
  static emulation::Block threads(Threads);
  for (const uint32_t block : blocks) {
    emulation::block_index.x = block;
    threads.run([&param] { Kernel(param); });
  }
  return true;
}
constexpr Kernels kEmulated = {.stats = &emulate<kThreads, &convtrace_stats, FewBatch>,
                               .fold = &emulate<kFoldThreads, &convtrace_fold, Fold>};

/// @param per_launch  tensors; their logs are folded together.
void require_equal(std::vector<ReplayedLaunch::Input> inputs, Variant variant = Variant::kWide,
                   uint64_t seed = 1, size_t per_launch = FewBatch::kMaxTensors) {
  ReplayedLaunch replayed(inputs, variant), emulated(inputs, variant, kEmulated, per_launch);
  std::vector<uint32_t> order(emulated.blocks());
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  replayed.run();
  emulated.run(order);
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO(format::to_string(inputs[i].view.dtype) << " x " << element_count(inputs[i].view));
    require_same(emulated.result(i), replayed.result(i));
  }
}

constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16,
                            DType::kI64, DType::kI32, DType::kU8};

TEST_CASE("kernel source: tensors of one tile, several, and several groups", "[stats][emulated]") {
  for (const DType dtype : kTypes) {
    const uint64_t size = format::element_bytes(dtype);
    for (const uint64_t bytes : {8u, 1000u, 16384u, 16392u, 100'000u, 64u * 16384u, 1'200'000u}) {
      const auto memory = random_bytes(dtype, bytes / size, bytes);
      require_equal({{view_of(memory, dtype)}, {view_of(memory, dtype), Capture::kHash}},
                    Variant::kWide, bytes);
    }
  }
}

TEST_CASE("kernel source: the variant for slow f64", "[stats][emulated]") {
  const auto memory = random_bytes(DType::kF32, 40'000, 3);
  require_equal({{view_of(memory, DType::kF32)}}, Variant::kNarrow);
}

TEST_CASE("kernel source: values on one side of zero, and none that are finite",
          "[stats][emulated]") {
  std::vector<float> above(30'000), none(30'000, std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < above.size(); ++i) above[i] = 1000 + static_cast<float>(i % 97) / 97;
  std::vector<float> late = none;
  late[20'000] = 3;
  for (const std::vector<float>* values : {&above, &none, &late}) {
    require_equal({{dense_view(values->data(), DType::kF32, values->size())}});
  }
}

TEST_CASE("kernel source: which of the leading elements the shift is shows in one sign's last bits",
          "[stats][emulated]") {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kI64, DType::kI32}) {
    const uint64_t size = format::element_bytes(dtype);
    const bool is_float = format::number_class(dtype) == format::NumberClass::kFloat;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      // Of very different sizes; a tile, a chunk, and less. The first ones are not finite, or -1.
      const uint64_t bytes = seed % 3 == 0 ? 70'000 : seed % 3 == 1 ? 4096 : 200;
      auto memory = random_bytes(dtype, bytes / size + seed, seed);
      for (size_t i = size - 1; i < memory.size(); i += size) memory[i] &= is_float ? 0x47 : 0x7F;
      if (is_float) std::fill_n(memory.begin(), seed % 6 * size, uint8_t{0xFF});
      require_equal({{view_of(memory, dtype)}}, Variant::kWide, seed);
    }
  }
}

TEST_CASE("kernel source: the sign of each leading element counts, and of no other",
          "[stats][emulated]") {
  std::vector<float> above(30'000);
  for (size_t i = 0; i < above.size(); ++i) above[i] = 1000 + static_cast<float>(i % 97) / 97;
  for (const size_t place : {0u, 1u, 31u, 32u, 1023u, 1024u}) {
    for (const size_t count : {size_t{1025}, above.size()}) {
      std::vector<float> values(above.begin(), above.begin() + static_cast<ptrdiff_t>(count));
      values[place] = -1;
      require_equal({{view_of(values, DType::kF32)}});
      values[place] = 0;
      require_equal({{view_of(values, DType::kF32)}});
    }
  }
}

TEST_CASE("kernel source: tiles and groups of tiles without a finite value in front",
          "[stats][emulated]") {
  for (const size_t empty : {4096u, 5000u, 3 * 4096u, 40 * 4096u}) {
    std::mt19937_64 random(empty);
    std::vector<float> values(200 * 4096, std::numeric_limits<float>::quiet_NaN());
    for (size_t i = empty; i < values.size(); ++i)
      values[i] = 1e6F + static_cast<float>(random() % 1000) / 7;
    require_equal({{view_of(values, DType::kF32)}});
  }
}

TEST_CASE("kernel source: as many groups and tiles of a group as there are", "[stats][emulated]") {
  for (const uint64_t bytes : {(uint64_t{32} << 20) - 16, (uint64_t{33} << 20) + 12}) {
    const auto memory = ordinary_bytes(DType::kF32, bytes / 4, bytes);
    require_equal({{view_of(memory, DType::kF32)}});
  }
}

TEST_CASE("kernel source: tensors that are not aligned, and views", "[stats][emulated]") {
  const auto bytes = random_bytes(DType::kU8, 200'000, 9);
  for (const uint64_t off : {1u, 2u, 4u, 8u}) {
    require_equal({{dense_view(bytes.data() + off, DType::kF32, 45'000)},
                   {dense_view(bytes.data() + off, DType::kBF16, 90'000)}});
  }
  const auto buffer = random_bytes(DType::kU8, kViewBufferBytes, 4);
  for (const NamedView& view : named_views()) {
    if (std::ranges::find(kTypes, view.dtype) != std::end(kTypes))
      require_equal({{view.at(buffer.data())}});
  }
}

TEST_CASE(
    "kernel source: many tensors in one launch or several, with blocks in any order, and one fold",
    "[stats][emulated]") {
  std::vector<std::vector<uint8_t>> memory;
  std::vector<ReplayedLaunch::Input> inputs;
  for (uint64_t i = 0; i < 40; ++i) memory.push_back(random_bytes(kTypes[i % 6], 500 + i * 997, i));
  for (uint64_t i = 0; i < 40; ++i) inputs.push_back({view_of(memory[i], kTypes[i % 6])});
  for (const uint64_t seed : {1u, 2u, 3u})
    require_equal(inputs, Variant::kWide, seed, seed == 1 ? inputs.size() : seed * 7);
}

}  // namespace
}  // namespace convtrace::stats::test
