#pragma once
/// @file device_values.h
/// Copies the values of tensors from a device to the host, in one CUDA context.
///
/// The program's stream gets one copy within the device, into an arena of convtrace. The statistics
/// kernel follows on the same stream, so its result shows that the copy is done and no event is
/// needed. If the hash shows that the value is stored already, nothing is transferred. Otherwise
/// the value is copied in pieces into a ring of pinned host memory, on a stream of convtrace.
///
/// Place:    context_stats.cpp calls stage() and take(); the helper thread of device_stats.cpp
///           calls pump().
/// Threads:  stage(), take() and give_up() on any; pump() on one, a second caller returns at once.
///           No caller waits for a driver call of another: give_up() runs where the driver holds
///           locks.
/// Errors:   no room is a return value, and the sink counts it. A CUDA error ends all transfers of
///           this context, and the values on their way are counted as lost.

#include <cuda.h>

#include <atomic>
#include <list>
#include <memory>
#include <optional>

#include "cupti/driver/api.h"
#include "cupti/stats/tile/layout.h"
#include "cupti/values/staging_arena.h"
#include "cupti/values/value_sink.h"
#include "format/base/mutex.h"
#include "format/model/event_sink.h"
#include "format/values/blob.h"

namespace convtrace::cupti {

class DeviceValues {
 public:
  /// A value in the arena of the device.
  struct Staged {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  /// @param sink  null: no value is ever stored. `sink` and `losses` outlive this.
  DeviceValues(const DriverApi& driver, ValueSink* sink, format::EventSink& losses)
      : driver_(driver), sink_(sink), losses_(losses) {}
  ~DeviceValues();
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  /// Allocates memory in the current context. If that fails, no value is stored and each one is
  /// counted.
  /// @param arena_bytes  on the device. @param gather  the kernel that copies in logical order.
  void prepare(uint64_t arena_bytes, CUfunction gather) noexcept;

  /// Copies the tensor into the arena, behind the work that `stream` holds now. @return nothing if
  /// it cannot.
  [[nodiscard]] std::optional<Staged> stage(const stats::Layout& layout, CUstream stream) noexcept;
  /// Counts a value that could not be staged. @return whether to record its statistics.
  [[nodiscard]] bool refuse() noexcept { return sink_ == nullptr || sink_->refuse(); }

  /// Frees the arena's copy of a value that is not to be stored.
  void give_back(const Staged& staged) noexcept { arena_.release(staged.offset); }
  /// Starts the transfer of a value whose copy is done. @param event  with its statistics.
  void take(const format::TensorStats& event, const Staged& staged) noexcept;

  /// Transfers as much as possible without waiting, in the current context. @return whether a
  /// transfer is running; values that wait for room on the host do not count.
  bool pump() noexcept;
  [[nodiscard]] uint64_t under_way() const noexcept { return under_way_.load(); }

  /// From now on no call is made to the driver; does not wait for one that pump() may be in.
  /// @return the number of values that are lost by that.
  uint64_t give_up() noexcept;

 private:
  static constexpr uint32_t kChunks = 64;
  static constexpr size_t kChunkBytes = format::kPartBytes;
  static constexpr size_t kRingBytes = kChunks * kChunkBytes;

  struct Pending {
    format::TensorStats event;
    Staged staged;
    std::unique_ptr<IncomingValue> incoming;
    uint64_t sent = 0, received = 0;
    bool over = false;  ///< the rest of it will not be sent
  };

  enum class Phase : uint8_t { kUnprepared, kReady, kOver };

  [[nodiscard]] bool is(Phase phase) const noexcept {
    return phase_.load(std::memory_order_acquire) == phase;
  }
  [[nodiscard]] CUresult copy(const stats::Layout& layout, CUdeviceptr to,
                              CUstream stream) const noexcept;
  void discard() noexcept;
  void count_out() noexcept;
  [[nodiscard]] bool make_memory(uint64_t arena_bytes) noexcept CONVTRACE_REQUIRES(pump_mutex_);
  [[nodiscard]] bool start(Pending& value) noexcept CONVTRACE_REQUIRES(pump_mutex_);
  [[nodiscard]] bool send() noexcept CONVTRACE_REQUIRES(pump_mutex_);
  [[nodiscard]] bool receive() noexcept CONVTRACE_REQUIRES(pump_mutex_);
  [[nodiscard]] bool send_piece(Pending& value) noexcept CONVTRACE_REQUIRES(pump_mutex_);

  const DriverApi& driver_;
  ValueSink* const sink_;
  format::EventSink& losses_;
  std::atomic<Phase> phase_{Phase::kUnprepared};
  CUfunction gather_ = nullptr;
  CUdeviceptr arena_address_ = 0;
  StagingArena arena_;

  Mutex handover_mutex_;  ///< held briefly, never during a call to the driver
  std::list<Pending> handed_over_ CONVTRACE_GUARDED_BY(handover_mutex_);
  std::atomic<uint64_t> under_way_{0};  ///< handed over or pending; read without the mutex

  Mutex pump_mutex_;  ///< only locked with try_lock
  CUstream stream_ CONVTRACE_GUARDED_BY(pump_mutex_) = nullptr;
  std::byte* ring_ = nullptr;
  CUevent arrived_[kChunks] CONVTRACE_GUARDED_BY(pump_mutex_) = {};
  /// Number of pieces sent so far; piece n lies in chunk n mod kChunks.
  uint64_t sent_ CONVTRACE_GUARDED_BY(pump_mutex_) = 0;
  uint64_t received_ CONVTRACE_GUARDED_BY(pump_mutex_) = 0;
  std::list<Pending> pending_
      CONVTRACE_GUARDED_BY(pump_mutex_);  ///< in the order in which they are sent
};

}  // namespace convtrace::cupti
