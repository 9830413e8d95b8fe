#pragma once
/// @file replayed_launch.h
/// Launches of the statistics kernel, and of the one that folds what they leave, as the host's replay
/// runs them.

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cupti/stats/batch.h"
#include "tests/support/host_replay.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {

inline void* same_address(uint64_t at, size_t) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(at));
}
inline bool replay_stats(const FewBatch& batch, std::span<const uint32_t> blocks) {
  return replay_stats_kernel(batch, same_address, blocks);
}
inline bool replay_fold(const Fold& fold, std::span<const uint32_t> blocks) {
  return replay_fold_kernel(fold, same_address, blocks);
}

/// Run blocks of a kernel, whose parameter has addresses of the host.
struct Kernels {
  bool (*stats)(const FewBatch& batch, std::span<const uint32_t> blocks) = &replay_stats;
  bool (*fold)(const Fold& fold, std::span<const uint32_t> blocks) = &replay_fold;
};

/// One log and its tensors, in ordinary memory.
class ReplayedLaunch {
 public:
  struct Input {
    TensorView view;
    format::Capture capture = format::Capture::kStats;
  };

  /// @param per_launch  the most tensors of a launch.
  explicit ReplayedLaunch(std::vector<Input> inputs, Variant variant = Variant::kWide,
                          const Kernels& kernels = {}, size_t per_launch = ManyBatch::kMaxTensors)
      : inputs_(std::move(inputs)),
        slots_(inputs_.size()),
        layouts_(inputs_.size()),
        variant_(variant),
        kernels_(kernels),
        per_launch_(per_launch) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      REQUIRE(flatten(inputs_[i].view, layouts_[i]).ok());
      blocks_ += make_tiling(layouts_[i].bytes()).tiles;
    }
    const size_t places = blocks_ + inputs_.size();
    memory_.resize(places);
    std::memset(static_cast<void*>(memory_.data()), 0xEE,
                places * sizeof(LogPlace));  // of another time
    log_->places = static_cast<uint32_t>(places);
    log_->address = address(memory_.data());
  }

  /// @param order of the blocks; empty: ascending. A launch runs its own of them.
  void run(std::vector<uint32_t> order = {}) {
    for (uint32_t block = 0; order.size() < blocks_; ++block) order.push_back(block);
    begin();
    for (size_t next = 0; next < inputs_.size();) next = launch(next, order);
    for (uint32_t first = 0; first < log_->count; first += Fold::kMaxJobs) {
      const Fold fold = fold_of(*log_, first, address(slots_.data()));
      std::vector<uint32_t> jobs;
      for (const uint32_t block : order)
        if (block < fold.count) jobs.push_back(block);
      REQUIRE(kernels_.fold(fold, jobs));
    }
  }
  /// @return the tile of one block of the only tensor, which runs alone.
  Partial run_block(uint32_t block) {
    begin();
    launch(0, {block});
    return memory_[log_places(block)];
  }

  [[nodiscard]] StatsResult result(size_t i) const {
    REQUIRE(slots_[i].sequence == sequence(i));
    return read_slot(slots_[i], layouts_[i].count, inputs_[i].view.dtype, inputs_[i].capture,
                     variant_);
  }
  [[nodiscard]] uint32_t blocks() const { return blocks_; }

 private:
  static uint64_t sequence(size_t i) { return 7 + i; }

  void begin() {
    log_->clear();
    first_block_ = 0;
  }
  /// Launches tensors from `next` on. @return the first one that is not launched.
  size_t launch(size_t next, const std::vector<uint32_t>& order) {
    BatchBuilder builder(*batch_, *log_);
    batch_->head.slots = address(slots_.data());
    batch_->head.list = address(list_.get());
    batch_->head.variant = static_cast<uint32_t>(variant_);
    const size_t begin = next;
    const auto add = [&] {
      return next < inputs_.size() && next - begin < per_launch_ &&
             builder.add(layouts_[next], inputs_[next].capture,
                         static_cast<uint32_t>(next * sizeof(ResultSlot)), sequence(next));
    };
    while (add()) ++next;
    REQUIRE(next > begin);
    FewBatch parameter;  // as a driver copies it
    std::memcpy(&parameter, batch_.get(), sizeof parameter);
    if (batch_->head.tensor_count > FewBatch::kMaxTensors)
      REQUIRE(replay_list_kernel(*batch_, same_address));
    std::vector<uint32_t> own;
    for (const uint32_t block : order)
      if (block - first_block_ < builder.blocks()) own.push_back(block - first_block_);
    REQUIRE(kernels_.stats(parameter, own));
    first_block_ += builder.blocks();
    return next;
  }
  static uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::vector<Input> inputs_;
  std::vector<ResultSlot> slots_;
  std::vector<Layout> layouts_;
  Variant variant_;
  Kernels kernels_;
  size_t per_launch_;
  std::vector<LogPlace> memory_;
  std::unique_ptr<Log> log_ = std::make_unique<Log>();
  std::unique_ptr<ManyBatch> batch_ = std::make_unique<ManyBatch>();
  std::unique_ptr<ManyBatch> list_ = std::make_unique<ManyBatch>();
  uint32_t blocks_ = 0, first_block_ = 0;
};

}  // namespace convtrace::stats::test
