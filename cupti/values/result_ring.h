#pragma once
/// @file result_ring.h
/// Where a device leaves its results: slots in host memory that it writes and the host polls.
///
/// The memory is ours, only registered with the driver. So it outlives a context, and reading it
/// is safe at any time, also while the driver shuts down. Where the driver refuses that, memory of
/// its own is borrowed, and no longer read when its context may end.
///
/// Order:    results are given out in the order in which their slots were claimed, whatever stream
///           finished first. Only while half of the slots are taken those of other streams come
///           before those of one that stalls.
/// Threads:  claim() and what is told of its tickets from one thread at a time; collect() from one
///           thread at a time, beside it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cupti/stats/batch.h"
#include "cupti/stats/compute.h"
#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/tile/layout.h"
#include "cupti/values/device_values.h"
#include "cupti/values/request.h"
#include "format/model/event_sink.h"

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
  /// Uses `memory`, of as many bytes, in place of its own.
  void borrow(void* memory) noexcept;
  [[nodiscard]] bool is_borrowed() const noexcept { return borrowed_; }
  /// Nothing is read or given out any more. @return tickets that are lost by that.
  [[nodiscard]] uint64_t close() noexcept;
  /// @param address where the device sees the memory.
  void set_device_address(uint64_t address) noexcept { device_address_ = address; }

  /// Work that shares a lane is done in the order of its tickets.
  static constexpr uint32_t kLanes = 16;
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

  /// Takes consecutive tickets of a lane, one for each request, and copies the requests.
  /// @return the first; nothing if there are not so many free slots.
  [[nodiscard]] std::optional<Ticket> claim(std::span<const DeviceRequest> batch,
                                            uint32_t lane) noexcept;

  /// What is to be computed for a ticket. @return null when the device has nothing to do for it:
  /// no elements, or a view that cannot be walked.
  [[nodiscard]] const stats::Layout* layout(Ticket ticket) const noexcept;
  [[nodiscard]] format::Capture capture(Ticket ticket) const noexcept;
  /// Fills in where the results of a batch go. @param first  of its tickets.
  void begin(stats::Batch& batch, Ticket first) const noexcept {
    batch.slots = device_address_;
    batch.sequence = entry(first).sequence;
  }
  /// Puts the work of a ticket that has a layout into a launch. @return as BatchBuilder::add().
  [[nodiscard]] bool add_to(stats::BatchBuilder& builder, Ticket ticket) const noexcept;
  /// The value is copied into the arena before the statistics are computed.
  void set_staged(Ticket ticket, const DeviceValues::Staged& staged) noexcept {
    entry(ticket).staged = staged;
  }
  /// The value is not stored.
  void leave_statistics(Ticket ticket) noexcept {
    entry(ticket).request.event.capture = format::Capture::kStats;
  }
  /// The device will not do it: nothing comes out for this ticket.
  void drop(Ticket ticket) noexcept;

  /// Gives out what is complete. @param[in,out] room at most so many; less by what was given out.
  /// @param values  is given those that were staged.
  void collect(format::EventSink& sink, DeviceValues& values, uint64_t& room) noexcept;

  [[nodiscard]] uint64_t under_way() const noexcept {
    return memory_ == nullptr ? 0 : slots_ - free_.size();
  }
  /// Whether all its results are out.
  [[nodiscard]] bool is_idle(uint32_t lane) const noexcept { return lanes_[lane].size() == 0; }

  /// So many launches made what ends with `last`.
  void launched(Ticket last, uint32_t launches) noexcept;
  /// @return launches that the device is not done with.
  [[nodiscard]] uint32_t launches_under_way() noexcept;

 private:
  enum class Fate : uint8_t { kOnDevice, kEmpty, kNoView, kDropped };

  /// What the host remembers of a slot.
  struct Entry {
    DeviceRequest request;
    stats::Layout layout;
    DeviceValues::Staged staged;  ///< no bytes: it is not
    uint64_t number = 0;          ///< of all claims
    uint64_t sequence = 0;        ///< of its batch: the word that marks the slot as complete
    uint32_t launches = 0;        ///< that its batch took, of the last of a batch; claim()'s thread
    std::atomic<Fate> fate{Fate::kDropped};
  };

  /// A hash from in front of a launch, until the value from behind it comes.
  struct Before {
    uint64_t probe = 0;
    uint64_t hash = 0;
  };

  /// @return first elements, real ones, that are written beside the evenly spread ones.
  [[nodiscard]] uint32_t leading_count(const Entry& entry) const noexcept;
  /// @param[in,out] event of a half of a probe. @return whether it is an output's value.
  bool judge(const Probe& probe, format::TensorStats& event) noexcept;
  /// @param slot  of the result, or null.
  void emit(const Entry& entry, const stats::StatsResult& result, const stats::ResultSlot* slot,
            DeviceValues& values, format::EventSink& sink) noexcept;
  bool deliver(uint32_t index, format::EventSink& sink, DeviceValues& values) noexcept;
  [[nodiscard]] bool is_complete(uint32_t slot) const noexcept;

  /// Slots in order, from one thread to another.
  class Queue {
   public:
    void allocate(uint32_t slots) { slots_ = std::vector<uint32_t>(slots); }
    void push(uint32_t slot) noexcept {
      const uint64_t end = end_.load(std::memory_order_relaxed);
      slots_[end % slots_.size()] = slot;
      end_.store(end + 1, std::memory_order_release);
    }
    void pop() noexcept { begin_.fetch_add(1, std::memory_order_release); }
    [[nodiscard]] uint32_t at(uint64_t position) const noexcept {
      return slots_[position % slots_.size()];
    }
    [[nodiscard]] uint64_t begin() const noexcept { return begin_.load(std::memory_order_acquire); }
    [[nodiscard]] uint64_t end() const noexcept { return end_.load(std::memory_order_acquire); }
    [[nodiscard]] uint64_t size() const noexcept {
      const uint64_t begin = this->begin();
      return end() - begin;
    }

   private:
    std::vector<uint32_t> slots_;
    std::atomic<uint64_t> begin_{0}, end_{0};
  };
  /// What claim()'s thread knows of a lane.
  struct Launches {
    uint64_t seen = 0;  ///< tickets before it are done
    uint32_t under_way = 0;
  };

  [[nodiscard]] Entry& entry(Ticket ticket) const noexcept {
    return entries_[lanes_[ticket.lane].at(ticket.position)];
  }
  [[nodiscard]] Queue* oldest(const bool (&stalls)[kLanes]) noexcept;
  [[nodiscard]] size_t bytes() const noexcept { return slots_ * slot_bytes_; }

  std::byte* memory_ = nullptr;
  bool borrowed_ = false;
  uint32_t slots_ = kSlots;
  size_t slot_bytes_ = sizeof(stats::ResultSlot);  ///< with the samples behind it
  uint32_t samples_ = 0;                           ///< of one value at most
  stats::Variant variant_ = stats::Variant::kWide;
  uint64_t device_address_ = 0;
  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<Before[]> before_;  ///< of probe n at n mod slots_; whoever collects has it
  Queue lanes_[kLanes];               ///< claimed, and not given out
  Queue free_;
  Launches launches_[kLanes];
  uint64_t claims_ = 0;
};

}  // namespace convtrace::cupti
