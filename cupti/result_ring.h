#pragma once
/// @file result_ring.h
/// Where a device leaves its results: slots in host memory that it writes and the host polls.
///
/// The memory is ours, only registered with the driver. So it outlives a context, and reading it
/// is safe at any time, also while the driver shuts down.
///
/// Order:    slots are claimed, and their results given out, in one sequence: a trace lists values
/// as the program asked for them, whatever stream finished first.
/// Threads:  claim() from one thread at a time; collect() from one thread at a time, beside it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cupti/device_values.h"
#include "cupti/interceptor.h"
#include "cupti/stats/batch.h"
#include "cupti/stats/compute.h"
#include "cupti/stats/device_layout.h"
#include "cupti/stats/layout.h"
#include "format/event_sink.h"

namespace convtrace::cupti {

class ResultRing {
 public:
  /// 10 MB of host memory: the tensors of a training step of a model of some hundred layers. Fewer
  /// slots where they have room for thousands of samples each.
  static constexpr uint32_t kSlots = 4096;
  static constexpr size_t kMostBytes = size_t{64} << 20;

  ResultRing() = default;
  ~ResultRing();
  ResultRing(const ResultRing&) = delete;
  ResultRing& operator=(const ResultRing&) = delete;

  /// @param samples  that a request may ask for. @param variant of the kernel.
  /// @return the memory to register, zero; empty if there is none.
  [[nodiscard]] std::span<std::byte> allocate(uint32_t samples, stats::Variant variant) noexcept;
  /// @param address where the device sees the memory.
  void set_device_address(uint64_t address) noexcept { device_address_ = address; }

  /// Takes consecutive tickets, one for each request, and copies the requests.
  /// @return the first; nothing if there are not so many free slots.
  [[nodiscard]] std::optional<uint64_t> claim(std::span<const DeviceRequest> batch) noexcept;

  /// What is to be computed for a ticket. @return null when the device has nothing to do for it:
  /// no elements, or a view that cannot be walked.
  [[nodiscard]] const stats::Layout* layout(uint64_t ticket) const noexcept;
  [[nodiscard]] format::Capture capture(uint64_t ticket) const noexcept;
  /// Puts the work of a ticket that has a layout into a launch. @return as BatchBuilder::add().
  [[nodiscard]] bool add_to(stats::BatchBuilder& builder, uint64_t ticket) const noexcept;
  /// The value is copied into the arena before the statistics are computed.
  void set_staged(uint64_t ticket, const DeviceValues::Staged& staged) noexcept {
    entries_[place(ticket)].staged = staged;
  }
  /// The value is not stored.
  void leave_statistics(uint64_t ticket) noexcept {
    entries_[place(ticket)].request.event.capture = format::Capture::kStats;
  }
  /// The device will not do it: nothing comes out for this ticket.
  void drop(uint64_t ticket) noexcept;

  /// Gives out what is complete. @param[in,out] room at most so many; less by what was given out.
  /// @param values  is given those that were staged.
  void collect(format::EventSink& sink, DeviceValues& values, uint64_t& room) noexcept;

  [[nodiscard]] uint64_t under_way() const noexcept {
    return head_.load(std::memory_order_acquire) - tail_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_done(uint64_t ticket) const noexcept {
    return ticket < tail_.load(std::memory_order_acquire);
  }

 private:
  enum class Fate : uint8_t { kOnDevice, kEmpty, kNoView, kDropped };

  /// What the host remembers of a slot.
  struct Entry {
    DeviceRequest request;
    stats::Layout layout;
    DeviceValues::Staged staged;  ///< no bytes: it is not
    std::atomic<Fate> fate{Fate::kDropped};
  };

  /// A hash from in front of a launch, until the value from behind it comes.
  struct Before {
    uint64_t look = 0;
    uint64_t hash = 0;
  };

  /// @return first elements, real ones, that are written beside the evenly spread ones.
  [[nodiscard]] uint32_t leading_count(const Entry& entry) const noexcept;
  /// @param[in,out] event of a half of a look. @return whether it is an output's value.
  bool judge(const Look& look, format::TensorStats& event) noexcept;
  /// @param slot  of the result, or null.
  void emit(const Entry& entry, const stats::StatsResult& result, const stats::ResultSlot* slot,
            DeviceValues& values, format::EventSink& sink) noexcept;
  bool deliver(uint64_t ticket, format::EventSink& sink, DeviceValues& values) noexcept;

  /// The word that marks the slot as complete.
  [[nodiscard]] static uint64_t sequence(uint64_t ticket) noexcept { return ticket + 1; }
  [[nodiscard]] size_t place(uint64_t ticket) const noexcept { return ticket % slots_; }
  [[nodiscard]] size_t bytes() const noexcept { return slots_ * slot_bytes_; }

  std::byte* memory_ = nullptr;
  uint32_t slots_ = kSlots;
  size_t slot_bytes_ = sizeof(stats::ResultSlot);  ///< with the samples behind it
  uint32_t samples_ = 0;                           ///< of one value at most
  stats::Variant variant_ = stats::Variant::kWide;
  uint64_t device_address_ = 0;
  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<Before[]> before_;  ///< of look n at place(n); whoever collects has it
  std::atomic<uint64_t> head_{0};     ///< next ticket to claim
  std::atomic<uint64_t> tail_{0};     ///< next ticket to give out
};

}  // namespace convtrace::cupti
