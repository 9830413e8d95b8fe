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

bool emulate(const FewBatch& batch, std::span<const uint32_t> blocks) {
  static emulation::Block threads(kThreads);
  for (const uint32_t block : blocks) {
    emulation::block_index.x = block;
    threads.run([&batch] { convtrace_stats(batch); });
  }
  return true;
}

void require_equal(std::vector<ReplayedLaunch::Input> inputs, Variant variant = Variant::kWide,
                   uint64_t seed = 1) {
  ReplayedLaunch replayed(inputs, variant), emulated(inputs, variant, &emulate);
  std::vector<uint32_t> order(emulated.blocks());
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  replayed.run();
  emulated.run(order);
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO(format::to_string(inputs[i].view.dtype) << " x " << element_count(inputs[i].view));
    require_same(emulated.result(i), replayed.result(i));
  }
  CHECK(emulated.tickets_are_zero());
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

TEST_CASE("kernel source: many tensors in one launch, each in blocks of any order",
          "[stats][emulated]") {
  std::vector<std::vector<uint8_t>> memory;
  std::vector<ReplayedLaunch::Input> inputs;
  for (uint64_t i = 0; i < 40; ++i) memory.push_back(random_bytes(kTypes[i % 6], 500 + i * 997, i));
  for (uint64_t i = 0; i < 40; ++i) inputs.push_back({view_of(memory[i], kTypes[i % 6])});
  for (const uint64_t seed : {1u, 2u, 3u}) require_equal(inputs, Variant::kWide, seed);
}

}  // namespace
}  // namespace convtrace::stats::test
