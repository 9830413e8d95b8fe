#pragma once
/// @file stream_uses.h
/// Which stream may have written a block last, whether that is known to be over, and whether it is
/// written again while it is read: for those who read memory that they have no part in.
///
/// In doubt nothing is over. That a kernel writes what its parameters point to is assumed, of a
/// copy its direction is known; what is written by addresses that no parameter holds (NCCL's
/// queues) is not seen. A program with one stream costs a comparison a launch.
///
/// Place:    told by the gate and the CUPTI callbacks, asked for the observer.
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

  /// A kernel is in the stream now.
  void launched(Stream stream, std::span<const format::Operand> operands) {
    if (exact_key(stream) != only_.load(std::memory_order_acquire)) note_launch(stream, operands);
  }
  /// A copy to that address is in the stream now.
  void wrote(Stream stream, uint64_t address);
  /// What orders work, as it is told in the trace.
  void order(const format::Sync& event);

  /// @param generation of the block; 0: not known.
  /// @return whether work in `stream` comes behind all that may have written it.
  [[nodiscard]] bool is_settled(Stream stream, uint64_t generation);
  /// Work of ours in `stream` reads the block from now on, until end_read(). The program may have
  /// recorded an event before, and have another stream write the block behind that alone.
  [[nodiscard]] OwnRead begin_read(Stream stream, uint64_t generation);
  /// @return whether no work that does not come behind the read has used the block since, as far
  /// as it was told by now.
  [[nodiscard]] bool end_read(const OwnRead& read) noexcept;

  /// @return whether no copy to that memory of the host is under way.
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
  /// The one stream that was ever used, if each thread means the same by it; 0: none, or several.
  std::atomic<uint64_t> only_{0};
  std::atomic<uint64_t> first_key_{0};  ///< of the first stream that was used; 0: none
  std::atomic<bool> several_{false};
  std::atomic<bool> copies_to_host_{false};

  Mutex mutex_;
  Stream first_ CONVTRACE_GUARDED_BY(mutex_);
  judge::StreamOrder order_ CONVTRACE_GUARDED_BY(mutex_){judge::StreamOrder::Doubt::kUnordered};
  uint64_t epoch_ CONVTRACE_GUARDED_BY(mutex_) = order_.epoch();
  std::vector<Stream> streams_ CONVTRACE_GUARDED_BY(mutex_);  ///< seen
  std::unordered_map<uint64_t, judge::Use> uses_
      CONVTRACE_GUARDED_BY(mutex_);  ///< the last, by generation
  struct PendingRead {
    uint64_t number;
    judge::Use use;
  };
  /// Of ours, by generation.
  std::unordered_multimap<uint64_t, PendingRead> reads_ CONVTRACE_GUARDED_BY(mutex_);
  uint64_t last_read_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  /// Of older generations without a use the last one is not known; if it is over, this is.
  uint64_t unknown_up_to_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  std::optional<judge::Use> unknown_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
