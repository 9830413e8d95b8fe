#pragma once
/// @file memory_journal.h
/// Reports of the framework's allocators: stored in a ring during the allocator's call, applied
/// later.
///
/// The allocator reports while it holds its lock, so report() only puts the report into the calling
/// thread's ring, with a ticket. apply_reports() takes the reports of all threads in the order of
/// their tickets, turns them into generations and calls the MemoryListener.
///
/// Blocks:   those of a device are entered into the AddressMap, those of CPU tensors into CpuBlocks,
///           and into the AddressMap from show_cpu_blocks() on.
/// Order:    an allocation is reported after it happens and a free before it happens, so the
///           tickets of two allocations at one address are always in their true order.
/// Threads:  report() and apply_reports() from any; one thread applies at a time.
/// Errors:   a report that finds its ring full is dropped and counted. A block whose free was
///           dropped ends when its address is allocated again.

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cupti/memory/address_map.h"
#include "format/base/mutex.h"
#include "interposer/core/memory/cpu_blocks.h"
#include "interposer/core/queue/ring_merge.h"

namespace convtrace::engine {

struct MemoryReport {
  uint64_t ticket = 0;
  uint64_t t_ns = 0;
  uint64_t address = 0;
  int64_t bytes = 0;  ///< negative: a free
  uint32_t thread = 0;
  format::Device device{};
  uint32_t frame_count = 0;  ///< number of return addresses behind the report, innermost first
};

/// Receives the processed reports, in the order of their tickets, on the thread that applies them.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  virtual void on_allocated(const MemoryReport& report, const cupti::MemoryRange& range,
                            std::span<void* const> stack) = 0;
  virtual void on_freed(const MemoryReport& report, const cupti::MemoryRange& range,
                        std::span<void* const> stack) = 0;
  virtual void on_reports_lost(uint64_t count) noexcept = 0;
};

class MemoryJournal {
 public:
  /// Both outlive the journal.
  MemoryJournal(cupti::AddressMap& addresses, MemoryListener& listener)
      : addresses_(addresses), listener_(listener) {}

  /// Notes one report. @param device a c10::Device: low byte the type, next byte the index.
  /// @return whether the calling thread's ring is filling up, so that apply_reports() should run soon.
  bool report(const void* pointer, int64_t bytes, uint64_t device) noexcept;

  /// Processes all reports made before the call.
  void apply_reports();
  /// As apply_reports(), but gives up if another thread applies for long.
  /// @return whether all reports made before the call are processed.
  bool apply_reports_if_free();
  /// Processes all reports made before the call.
  /// @return the live block of a CPU tensor that contains `address`; generation 0 if there is none.
  [[nodiscard]] CpuBlock cpu_block(uint64_t address);

  /// From the next call that processes reports on, the AddressMap has the blocks of CPU tensors, too:
  /// work of a device may use them.
  void show_cpu_blocks() noexcept { cpu_blocks_wanted_.store(true, std::memory_order_release); }
  /// Ends the reports of CPU tensors. Reports that are not processed yet are dropped. The next call
  /// of apply_reports() forgets all generations of CPU memory, as their frees will not be reported.
  void stop_cpu() noexcept { cpu_stopped_.store(true); }

  /// @param taken  whether reports of allocations carry call stacks from now on.
  void take_stacks(bool taken) noexcept { stacks_.store(taken, std::memory_order_relaxed); }
  /// From now on all reports carry call stacks, also those of frees.
  void take_all_stacks() noexcept { all_stacks_.store(true, std::memory_order_relaxed); }
  /// @return the call stack of a live generation's allocation, innermost first; empty if unknown.
  [[nodiscard]] std::vector<void*> allocation_stack(uint64_t generation) const;

  /// @return whether any allocator for that type of device has reported.
  [[nodiscard]] bool reported(format::Device::Type type) const noexcept {
    return seen_[static_cast<size_t>(type)].load(std::memory_order_relaxed) && !ended_for(type);
  }

 private:
  [[nodiscard]] bool ended_for(format::Device::Type type) const noexcept {
    return type == format::Device::Type::kCpu && cpu_stopped_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool all_applied() const noexcept;
  void apply_locked() CONVTRACE_REQUIRES(mutex_);
  void judge(const MemoryReport& report, std::span<void* const> stack) CONVTRACE_REQUIRES(mutex_);
  cupti::MemoryRange begin(const MemoryReport& report) CONVTRACE_REQUIRES(mutex_);
  std::optional<cupti::MemoryRange> end(const MemoryReport& report) CONVTRACE_REQUIRES(mutex_);
  void show_all_cpu_blocks() CONVTRACE_REQUIRES(mutex_);
  /// The device that the driver gave for this memory. The index in the report is used only without
  /// one: in some versions of PyTorch it has 16 bits at another place.
  [[nodiscard]] format::Device device_of(const MemoryReport& report) const;

  cupti::AddressMap& addresses_;
  MemoryListener& listener_;
  std::atomic<uint64_t> next_ticket_{1};
  std::atomic<uint64_t> applied_{0};  ///< number of applied reports; next_ticket_ - 1 when all are
  std::atomic<uint64_t> lost_{0};
  std::atomic<bool> stacks_{false};
  std::atomic<bool> all_stacks_{false};
  std::atomic<bool> seen_[3]{};
  std::atomic<bool> cpu_stopped_{false};
  std::atomic<bool> cpu_blocks_wanted_{false};  ///< in the AddressMap, but they are not there yet
  mutable Mutex mutex_;
  RingMerge merge_ CONVTRACE_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::vector<void*>> stack_of_generation_
      CONVTRACE_GUARDED_BY(mutex_);  ///< call stacks of live allocations
  CpuBlocks cpu_blocks_ CONVTRACE_GUARDED_BY(mutex_);
  bool shows_cpu_blocks_ CONVTRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace convtrace::engine
