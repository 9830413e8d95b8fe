#pragma once
/// @file result_ring.h
/// A ring of result slots in host memory that the device writes and the host polls.
///
/// convtrace owns the memory and registers it with the driver. So it outlives a context and can be
/// read at any time, also while the driver shuts down. If the driver refuses the registration,
/// memory of the driver is used, and not read any more once its context may have ended.
///
/// Order:    results come out in the order in which their slots were claimed, whichever stream
///           finishes first. While half of the slots are taken, results of other streams may
///           overtake those of a stream that stalls.
/// Reads:    a request takes the result of an earlier one of its lane that has it
///           (DeviceRequest::moment). So a slot is not used again before kKept further requests of
///           its lane are out.
/// Threads:  claim() and the functions that take its tickets on one thread at a time; collect() on
///           one thread at a time, concurrently with them.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cupti/stats/batch.h"
#include "cupti/stats/compute.h"
#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/tile/layout.h"
#include "cupti/values/device_values.h"
#include "cupti/values/request.h"
#include "cupti/values/slot_queue.h"
#include "format/model/event_sink.h"

namespace convtrace::cupti {

class ResultRing {
 public:
  /// 10 MB of host memory, enough for the tensors of a training step of a model with some hundred
  /// layers. Fewer slots if each has room for thousands of samples.
  static constexpr uint32_t kSlots = 4096;
  static constexpr size_t kMostBytes = size_t{64} << 20;

  ResultRing() = default;
  ~ResultRing();
  ResultRing(const ResultRing&) = delete;
  ResultRing& operator=(const ResultRing&) = delete;

  /// @param samples  the most that a request may ask for. @param variant  of the kernel.
  /// @return the memory to register, zeroed; empty if there is none.
  [[nodiscard]] std::span<std::byte> allocate(uint32_t samples, stats::Variant variant) noexcept;
  /// Uses `memory`, of the same size, instead of its own.
  void borrow(void* memory) noexcept;
  [[nodiscard]] bool is_borrowed() const noexcept { return borrowed_; }
  /// Ends reading: no more results come out. @return the number of tickets that are lost by that.
  [[nodiscard]] uint64_t close() noexcept;
  /// @param address  of the memory on the device.
  void set_device_address(uint64_t address) noexcept { device_address_ = address; }
  [[nodiscard]] uint64_t device_address() const noexcept { return device_address_; }

  /// Work of one lane finishes in the order of its tickets.
  static constexpr uint32_t kLanes = 16;
  /// A result can still be taken by a ticket up to this many places later in its lane.
  static constexpr uint32_t kKept = 16;
  struct Ticket {
    uint32_t lane = 0;
    uint64_t position = 0;
    Ticket& operator++() noexcept {
      ++position;
      return *this;
    }
    friend Ticket operator+(Ticket ticket, uint64_t ahead) noexcept {
      return {ticket.lane, ticket.position + ahead};
    }
  };

  /// Takes consecutive tickets of a lane, one for each request, and copies the requests. Nothing of
  /// the batch comes out, and so none of its slots is claimed again, before launched().
  /// @return nothing if there are not enough free slots.
  struct Claim {
    Ticket first;
    uint64_t sequence;  ///< marks all slots of the batch as complete
  };
  [[nodiscard]] std::optional<Claim> claim(std::span<const DeviceRequest> batch,
                                           uint32_t lane) noexcept;
  /// The lane's next tickets are those of another stream. Called like claim().
  void forget_reads(uint32_t lane) noexcept { reads_[lane] = {}; }

  /// The layout of the tensor to compute. @return null if the device has nothing to do for the
  /// ticket: no elements, a view that cannot be walked, or an earlier ticket has its result.
  [[nodiscard]] const stats::Layout* layout(Ticket ticket) const noexcept;
  [[nodiscard]] format::Capture capture(Ticket ticket) const noexcept;
  /// Adds the work of a ticket that has a layout to a launch. @return as BatchBuilder::add().
  [[nodiscard]] bool add_to(stats::BatchBuilder& builder, Ticket ticket) const noexcept;
  /// @return the lane's next ticket.
  [[nodiscard]] Ticket next(uint32_t lane) const noexcept { return {lane, lanes_[lane].end()}; }
  /// The value was copied into the arena, on the stream before the statistics.
  void set_staged(Ticket ticket, const DeviceValues::Staged& staged) noexcept {
    entry(ticket).staged = staged;
  }
  /// The value is not stored; its statistics are recorded.
  void leave_statistics(Ticket ticket) noexcept {
    entry(ticket).request.event.capture = format::Capture::kStats;
  }
  /// The device will not compute it: the ticket gives no result.
  void drop(Ticket ticket) noexcept;

  /// Emits finished results. @param[in,out] room  the most results to emit; reduced by those that
  /// were emitted.
  /// @param values  gets the values that were staged.
  void collect(format::EventSink& sink, DeviceValues& values, uint64_t& room) noexcept;

  [[nodiscard]] uint64_t under_way() const noexcept;
  /// @return whether all results of the lane have been emitted.
  [[nodiscard]] bool is_idle(uint32_t lane) const noexcept { return lanes_[lane].size() == 0; }

  /// The batch of `count` tickets from `first` on took this many launches. Its tickets are not used
  /// any more: their slots may be those of another batch.
  void launched(Ticket first, size_t count, uint32_t launches) noexcept;
  /// The device will not compute the lane's tickets from `first` on, although they are launched: they
  /// are counted as lost.
  void lose(Ticket first) noexcept;
  /// `launches` more launches will complete the lane's last ticket, which the device has not begun.
  void launches_more(uint32_t lane, uint32_t launches) noexcept;
  /// @return the number of launches that the device has not finished.
  [[nodiscard]] uint32_t launches_under_way() noexcept;

 private:
  /// kPending until launched(): a thread is at the batch, and may ask for any of its tickets.
  /// kSame: an earlier ticket of the lane has its result.
  enum class Fate : uint8_t { kOnDevice, kSame, kEmpty, kNoView, kDropped, kLost, kPending };

  /// The host's part of a slot.
  struct Entry {
    DeviceRequest request;
    stats::Layout layout;
    DeviceValues::Staged staged;  ///< no bytes: not staged
    uint64_t number = 0;          ///< counts all claims
    uint64_t sequence = 0;        ///< its batch's word that marks the slot as complete
    uint32_t slot = 0;            ///< slot with the result: its own, or an earlier ticket's
    /// Launches of the batch that ends with this entry; used by claim()'s thread.
    uint32_t launches = 0;
    Fate plan = Fate::kDropped;  ///< the fate that launched() sets; not read by collect()
    std::atomic<Fate> fate{Fate::kDropped};
  };

  /// The hash from before a launch, kept until the value after the launch arrives.
  struct Before {
    uint64_t probe = 0;
    uint64_t hash = 0;
  };

  /// Looks for an earlier ticket that has, or will have, the result of this one.
  void find_result(Ticket ticket) noexcept;
  /// @return the number of first elements that are recorded beside the evenly spread samples.
  [[nodiscard]] uint32_t leading_count(const Entry& entry) const noexcept;
  /// @param[in,out] event  a half of a probe. @return whether it is the value of an output.
  bool judge(const Probe& probe, format::TensorStats& event) noexcept;
  /// @param slot  of the result; null: there is none.
  void emit(const Entry& entry, const stats::StatsResult& result, const stats::ResultSlot* slot,
            DeviceValues& values, format::EventSink& sink) noexcept;
  bool deliver(uint32_t index, format::EventSink& sink, DeviceValues& values) noexcept;
  [[nodiscard]] bool is_complete(uint32_t slot) const noexcept;

  /// Progress of a lane; used by claim()'s thread.
  struct Launches {
    uint64_t seen = 0;  ///< tickets before this one are done
    uint32_t under_way = 0;
  };

  /// A ticket that the device computes, with its slot.
  struct Read {
    uint64_t moment = 0;  ///< 0: none
    uint64_t position = 0;
    uint32_t slot = 0;
  };
  /// @return whether the slot is kept for later tickets. A ring with fewer than kSlots keeps none.
  [[nodiscard]] bool is_kept(const Entry& entry) const noexcept {
    return entry.request.moment != 0 && slots_ == kSlots;
  }

  [[nodiscard]] Entry& entry(Ticket ticket) const noexcept {
    return entries_[lanes_[ticket.lane].at(ticket.position)];
  }
  [[nodiscard]] SlotQueue* oldest(const bool (&stalls)[kLanes]) noexcept;
  [[nodiscard]] size_t bytes() const noexcept { return slots_ * slot_bytes_; }

  std::byte* memory_ = nullptr;
  bool borrowed_ = false;
  uint32_t slots_ = kSlots;
  size_t slot_bytes_ = sizeof(stats::ResultSlot);  ///< size of a slot and the samples behind it
  uint32_t samples_ = 0;                           ///< largest number of samples of one value
  stats::Variant variant_ = stats::Variant::kWide;
  uint64_t device_address_ = 0;
  std::unique_ptr<Entry[]> entries_;
  /// Probe n is at index n mod slots_; used by the thread that collects.
  std::unique_ptr<Before[]> before_;
  SlotQueue lanes_[kLanes];  ///< claimed, and not emitted yet
  SlotQueue free_;
  Launches launches_[kLanes];
  /// By position; used by claim()'s thread.
  std::array<Read, kKept> reads_[kLanes];
  /// Slots of tickets that are out, by position; used by the thread that collects.
  std::optional<uint32_t> kept_[kLanes][kKept];
  uint64_t claims_ = 0;
};

}  // namespace convtrace::cupti
