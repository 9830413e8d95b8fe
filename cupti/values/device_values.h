#pragma once
/// @file device_values.h
/// Values of tensors on a device on their way to the host, in one CUDA context.
///
/// On the program's stream lies one copy inside the device, into an arena of ours. The statistics
/// kernel lies behind it on the same stream: when its result is there, so is the copy, and no event
/// is needed. If the value's hash is known by then, nothing crosses the bus. Otherwise pieces are
/// copied into a ring of pinned host memory on a stream of ours.
///
/// Place:    context_stats.cpp stages and hands over; the helper thread of device_stats.cpp pumps.
/// Threads:  stage(), take() and give_up() from any; pump() from one, another returns at once.
///           Nobody waits for a call to the driver: give_up() runs where the driver holds locks.
/// Errors:   no room is an answer, counted by the sink. A CUDA error ends it in this context, and
///           what was under way is counted.

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
  /// A value in the arena.
  struct Staged {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  /// @param sink  null: no value is ever stored. Outlives this, as `losses` does.
  DeviceValues(const DriverApi& driver, ValueSink* sink, format::EventSink& losses)
      : driver_(driver), sink_(sink), losses_(losses) {}
  ~DeviceValues();
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  /// Gets the memory, in the current context. Without it nothing is stored, and each value counted.
  /// @param arena_bytes  on the device. @param gather  the kernel that copies in logical order.
  void prepare(uint64_t arena_bytes, CUfunction gather) noexcept;

  /// Copies the tensor behind what `stream` holds now. @return nothing if it cannot be.
  [[nodiscard]] std::optional<Staged> stage(const stats::Layout& layout, CUstream stream) noexcept;
  /// A value could not be staged. @return whether to record its statistics.
  [[nodiscard]] bool refuse() noexcept { return sink_ == nullptr || sink_->refuse(); }

  /// The value is not wanted after all.
  void give_back(const Staged& staged) noexcept { arena_.release(staged.offset); }
  /// The copy is done. @param event  with its statistics.
  void take(const format::TensorStats& event, const Staged& staged) noexcept;

  /// Moves what can be moved without waiting; needs the context current. @return whether something
  /// is on the bus. What waits for room on the host is not.
  bool pump() noexcept;
  [[nodiscard]] uint64_t under_way() const noexcept { return under_way_.load(); }

  /// No further call on the driver but one that pump() may be in, for which it does not wait.
  /// @return values that are lost by that.
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
    bool over = false;  ///< nothing of it will be sent
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

  Mutex handover_mutex_;  ///< held for moments, never over a call to the driver
  std::list<Pending> handed_over_ CONVTRACE_GUARDED_BY(handover_mutex_);
  std::atomic<uint64_t> under_way_{0};  ///< handed over and pending; read without the mutex

  Mutex pump_mutex_;  ///< only ever tried
  CUstream stream_ CONVTRACE_GUARDED_BY(pump_mutex_) = nullptr;
  std::byte* ring_ = nullptr;
  CUevent arrived_[kChunks] CONVTRACE_GUARDED_BY(pump_mutex_) = {};
  /// Pieces; piece n is in chunk n mod kChunks.
  uint64_t sent_ CONVTRACE_GUARDED_BY(pump_mutex_) = 0;
  uint64_t received_ CONVTRACE_GUARDED_BY(pump_mutex_) = 0;
  std::list<Pending> pending_
      CONVTRACE_GUARDED_BY(pump_mutex_);  ///< in the order in which they are sent
};

}  // namespace convtrace::cupti
