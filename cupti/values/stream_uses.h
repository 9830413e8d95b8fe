#pragma once
/// @file stream_uses.h
/// Tracks, for each block of memory, the stream that may have written it last, whether that write
/// is ordered before later work, and whether the block is written while convtrace reads it. It
/// protects reads that the program does not know of.
///
/// In doubt a write is not over. A kernel is assumed to write everything that its parameters point
/// to; a copy's direction is known. Writes to addresses that no parameter holds (NCCL's queues) are
/// not seen. In a program with one stream the cost is one comparison a launch.
///
/// Place:    gate and CUPTI callbacks report uses; the observer's requests ask.
/// Threads:  any.
/// Source:   docs/gpu-double.md "The rules".

#include <atomic>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cupti/memory/address_map.h"
#include "cupti/values/request.h"
#include "format/base/mutex.h"
#include "format/findings/memory/stream_order.h"

namespace convtrace::cupti {

class StreamUses {
 public:
  /// A stream of a device, by its effective handle.
  struct Stream {
    uint64_t handle = 0;
    uint8_t device = 0;
  };

  /// @param addresses outlives this.
  explicit StreamUses(AddressMap& addresses) : addresses_(addresses) {}

  /// A kernel with these operands was launched on the stream.
  void launched(Stream stream, std::span<const format::Operand> operands) {
    if (exact_key(stream) != only_.load(std::memory_order_acquire)) note_launch(stream, operands);
  }
  /// A copy to that address was queued on the stream.
  void wrote(Stream stream, uint64_t address);
  /// Applies a recorded event that orders work.
  void order(const format::Sync& event);

  /// @param generation  of the block; 0: not known.
  /// @return whether work queued on `stream` now runs behind all work that may have written the
  /// block.
  [[nodiscard]] bool is_settled(Stream stream, uint64_t generation);
  /// Work of convtrace on `stream` reads the block from now on, until end_read(). It needs a check,
  /// since another stream may write the block behind an event that the program recorded before this
  /// read.
  [[nodiscard]] OwnRead begin_read(Stream stream, uint64_t generation);
  /// @return whether all work that has used the block since begin_read() was ordered behind the
  /// read, as far as reports show by now.
  [[nodiscard]] bool end_read(const OwnRead& read) noexcept;

  /// @return whether more than one stream was used.
  [[nodiscard]] bool several() const noexcept { return several_.load(std::memory_order_acquire); }

  /// @return whether no copy to that host memory is running.
  [[nodiscard]] bool is_settled_on_host(uint64_t generation);

 private:
  static constexpr size_t kMostUses = size_t{1} << 16;

  /// Never 0.
  [[nodiscard]] static uint64_t exact_key(Stream stream) noexcept {
    return (stream.handle ^ uint64_t{stream.device} << 56) + 1;
  }
  void note_launch(Stream stream, std::span<const format::Operand> operands);
  [[nodiscard]] static uint64_t key_of(Stream stream) noexcept;
  [[nodiscard]] static uint32_t thread_of(Stream stream) noexcept;
  [[nodiscard]] static uint64_t handle_of(Stream stream) noexcept;
  [[nodiscard]] uint16_t slot_of(Stream stream) CONVTRACE_REQUIRES(mutex_);
  [[nodiscard]] bool is_alone(Stream stream) noexcept;
  void begin_several() CONVTRACE_REQUIRES(mutex_);
  void note(judge::Use use, uint64_t generation) CONVTRACE_REQUIRES(mutex_);
  void make_room() CONVTRACE_REQUIRES(mutex_);

  AddressMap& addresses_;
  /// The key of the only stream that was ever used, if it means the same stream in every thread; 0:
  /// none, or several streams.
  std::atomic<uint64_t> only_{0};
  std::atomic<uint64_t> first_key_{0};  ///< key of the first stream that was used; 0: none
  std::atomic<bool> several_{false};
  std::atomic<bool> copies_to_host_{false};

  Mutex mutex_;
  Stream first_ CONVTRACE_GUARDED_BY(mutex_);
  judge::StreamOrder order_ CONVTRACE_GUARDED_BY(mutex_){judge::StreamOrder::Doubt::kUnordered};
  uint64_t epoch_ CONVTRACE_GUARDED_BY(mutex_) = order_.epoch();
  std::vector<Stream> streams_ CONVTRACE_GUARDED_BY(mutex_);  ///< all streams seen
  std::unordered_map<uint64_t, judge::Use> uses_
      CONVTRACE_GUARDED_BY(mutex_);  ///< the last use of each block, by generation
  struct PendingRead {
    uint64_t number;
    judge::Use use;
  };
  /// Reads of convtrace that have not ended, by generation.
  std::unordered_multimap<uint64_t, PendingRead> reads_ CONVTRACE_GUARDED_BY(mutex_);
  uint64_t last_read_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  /// Older generations without an entry: their last use is not known. It is over if this one is.
  uint64_t unknown_up_to_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  std::optional<judge::Use> unknown_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
