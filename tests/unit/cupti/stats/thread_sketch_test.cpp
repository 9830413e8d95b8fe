// The sketch as a device's threads make it in one pass (thread_sketch.h), by 64 threads of this
// process that exchange their sums as warps do.

#include "cupti/stats/thread/thread_sketch.h"

#include <barrier>
#include <thread>

#include "cupti/stats/thread/accumulator.h"
#include "cupti/stats/thread/thread_tile.h"
#include "cupti/stats/tile/unpack.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

/// What the threads of a block show each other.
struct Block {
  std::barrier<> barrier{kThreads};
  float shown[kThreads] = {};
};

/// Stands in for a warp's shuffle, which has no barrier.
struct BlockShuffle {
  Block* block = nullptr;
  uint32_t thread = 0;

  [[nodiscard]] float shuffle(float value, uint32_t from, uint32_t width) const {
    block->shown[thread] = value;
    block->barrier.arrive_and_wait();
    const float taken = block->shown[thread - thread % width + from % width];
    block->barrier.arrive_and_wait();
    return taken;
  }
};

/// The elements of a dense tensor, as they are taken.
template <DType D>
class DenseSource {
 public:
  explicit DenseSource(const std::vector<uint8_t>& bytes) : bytes_(bytes) {}

  [[nodiscard]] Group load(uint64_t first, uint32_t valid) const {
    constexpr size_t kSize = sizeof(typename Element<D>::Bits);
    Group group;
    std::memcpy(&group, bytes_.data() + first * kSize / kSpread<D>, valid * kSize / kSpread<D>);
    if constexpr (!kUnpacked<D>)
      return group;
    else
      return first_of(unpack<D>(group.word[0], group.word[1]), valid * kSize);
  }
  [[nodiscard]] Chunk load_chunk(uint64_t first) const {
    Chunk chunk;
    for (uint32_t i = 0; i < kChunkGroups; ++i)
      chunk.group[i] = load(first + i * kPerRow<D>, kPerGroup<D>);
    return chunk;
  }

 private:
  const std::vector<uint8_t>& bytes_;
};

template <DType D>
void require_one_pass_equals_lanes(uint64_t count, uint64_t seed, bool ordinary) {
  // Chunks of ordinary values are summed as they are.
  const auto bytes = ordinary ? ordinary_bytes(D, count, seed) : random_bytes(D, count, seed);
  const DenseSource<D> source(bytes);
  const Tiling tiling = make_tiling(bytes.size());
  for (uint32_t tile = 0; tile < tiling.tiles; ++tile) {
    const TileExtent extent = tile_extent<D>(tiling, tile);
    Block block;
    SketchPair got[kThreads];
    {
      std::vector<std::jthread> threads;
      for (uint32_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          ThreadSketch<D, BlockShuffle> sketch(extent.first, i, {&block, i});
          (void)thread_totals<D, SumsOf<D, false>>(source, extent, {}, i,
                                                   first_chunk<D>(source, extent, i), sketch);
          const SketchPair sums = sketch.close();
          got[sketch.lane()] = sums;
        });
      }
    }
    for (uint32_t lane = 0; lane < kThreads; ++lane) {
      const SketchPair want = sketch_lane<D>(source, extent, lane);
      INFO(format::to_string(D) << " x " << count << ", tile " << tile << ", lane " << lane);
      REQUIRE(got[lane].sum[0] == want.sum[0]);
      REQUIRE(got[lane].sum[1] == want.sum[1]);
    }
  }
}

TEMPLATE_TEST_CASE_SIG("thread sketch: one pass gives the lanes' sums to the last bit",
                       "[stats][sketch]", ((DType D), D), DType::kF32, DType::kF16, DType::kBF16,
                       DType::kF8E4M3FN, DType::kF8E5M2, DType::kF4E2M1FN, DType::kF8E8M0FNU) {
  constexpr uint64_t kTile = kMinTileBytes / format::element_bytes(D);
  for (const uint64_t count : {uint64_t{1}, uint64_t{513}, kTile, 2 * kTile + 3 * kPerRow<D> + 5}) {
    for (const bool ordinary : {false, true})
      require_one_pass_equals_lanes<D>(count, count, ordinary);
  }
}

}  // namespace
}  // namespace convtrace::stats::test
