#pragma once
/// @file replayed_launch.h
/// A launch of the statistics kernel as its host replay runs it.

#include <algorithm>
#include <vector>

#include "cupti/stats/batch.h"
#include "cupti/stats/kernels/host_replay.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {

/// One launch of the kernel's host replay, with arena and slots in ordinary memory.
class ReplayedLaunch {
 public:
  struct Input {
    TensorView view;
    format::Capture capture = format::Capture::kStats;
  };

  explicit ReplayedLaunch(std::vector<Input> inputs, Variant variant = Variant::kWide)
      : inputs_(std::move(inputs)), slots_(inputs_.size()), variant_(variant) {
    BatchBuilder builder(address(partials_.data()), address(tickets_.data()), variant);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Layout layout;
      REQUIRE(flatten(inputs_[i].view, layout).ok());
      REQUIRE(builder.add(layout, inputs_[i].capture, address(&slots_[i]), i + 1));
      counts_.push_back(layout.count);
    }
    batch_ = builder.batch();
    blocks_ = builder.blocks();
  }

  /// @param order of the blocks; empty: ascending.
  void run(std::vector<uint32_t> order = {}) {
    for (uint32_t block = 0; order.size() < blocks_; ++block) order.push_back(block);
    REQUIRE(replay_stats_kernel(batch_, blocks_, same, order));
  }
  /// @return the tile of one block, which runs alone.
  Partial run_block(uint32_t block) {
    REQUIRE(replay_stats_kernel(batch_, 1, same, {&block, 1}));
    return partials_[block];
  }

  [[nodiscard]] StatsResult result(size_t i) const {
    REQUIRE(slots_[i].sequence == i + 1);
    return read_slot(slots_[i], counts_[i], inputs_[i].view.dtype, inputs_[i].capture, variant_);
  }
  [[nodiscard]] uint32_t blocks() const { return blocks_; }
  [[nodiscard]] bool tickets_are_zero() const {
    return std::all_of(tickets_.begin(), tickets_.end(), [](uint32_t t) { return t == 0; });
  }

 private:
  static void* same(uint64_t at, size_t) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(at));
  }
  static uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::vector<Input> inputs_;
  std::vector<ResultSlot> slots_;
  Variant variant_;
  std::vector<uint64_t> counts_;
  std::vector<Partial> partials_ = std::vector<Partial>(kMaxBatchTiles);
  std::vector<uint32_t> tickets_ = std::vector<uint32_t>(kMaxBatchTensors);
  Batch batch_{};
  uint32_t blocks_ = 0;
};

}  // namespace convtrace::stats::test
