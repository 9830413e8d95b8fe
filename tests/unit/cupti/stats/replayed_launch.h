#pragma once
/// @file replayed_launch.h
/// A launch of the statistics kernel as its host replay runs it.

#include <algorithm>
#include <cstring>
#include <memory>
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

  /// Runs blocks of the statistics kernel, whose parameter has addresses of the host.
  using Kernel = bool (*)(const FewBatch& batch, std::span<const uint32_t> blocks);

  explicit ReplayedLaunch(std::vector<Input> inputs, Variant variant = Variant::kWide,
                          Kernel kernel = &replay_kernel)
      : inputs_(std::move(inputs)), slots_(inputs_.size()), variant_(variant), kernel_(kernel) {
    batch_->head.arena = address(arena_.get());
    batch_->head.slots = address(slots_.data());
    batch_->head.sequence = kSequence;
    batch_->head.variant = static_cast<uint32_t>(variant);
    BatchBuilder builder(*batch_);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Layout layout;
      REQUIRE(flatten(inputs_[i].view, layout).ok());
      const auto slot = static_cast<uint32_t>(i * sizeof(ResultSlot));
      REQUIRE(builder.add(layout, inputs_[i].capture, slot));
      counts_.push_back(layout.count);
    }
    blocks_ = builder.blocks();
  }

  /// @param order of the blocks; empty: ascending.
  void run(std::vector<uint32_t> order = {}) {
    for (uint32_t block = 0; order.size() < blocks_; ++block) order.push_back(block);
    replay(order);
  }
  /// @return the tile of one block, which runs alone.
  Partial run_block(uint32_t block) {
    replay({&block, 1});
    return arena_->partials[block];
  }

  [[nodiscard]] StatsResult result(size_t i) const {
    REQUIRE(slots_[i].sequence == kSequence);
    return read_slot(slots_[i], counts_[i], inputs_[i].view.dtype, inputs_[i].capture, variant_);
  }
  [[nodiscard]] uint32_t blocks() const { return blocks_; }
  [[nodiscard]] bool tickets_are_zero() const {
    const auto zero = [](uint32_t ticket) { return ticket == 0; };
    return std::ranges::all_of(arena_->group_tickets, zero) &&
           std::ranges::all_of(arena_->tensor_tickets, zero);
  }

 private:
  static constexpr uint64_t kSequence = 7;

  void replay(std::span<const uint32_t> blocks) {
    FewBatch parameter;  // as a driver copies it
    std::memcpy(&parameter, batch_.get(), sizeof parameter);
    if (batch_->head.tensor_count > FewBatch::kMaxTensors)
      REQUIRE(replay_list_kernel(*batch_, same));
    REQUIRE(kernel_(parameter, blocks));
  }
  static bool replay_kernel(const FewBatch& batch, std::span<const uint32_t> blocks) {
    return replay_stats_kernel(batch, same, blocks);
  }
  static void* same(uint64_t at, size_t) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(at));
  }
  static uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::vector<Input> inputs_;
  std::vector<ResultSlot> slots_;
  Variant variant_;
  Kernel kernel_;
  std::vector<uint64_t> counts_;
  std::unique_ptr<Arena> arena_ = std::make_unique<Arena>();
  std::unique_ptr<ManyBatch> batch_ = std::make_unique<ManyBatch>();
  uint32_t blocks_ = 0;
};

}  // namespace convtrace::stats::test
