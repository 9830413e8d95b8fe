#include "interposer/core/memory/memory_journal.h"

#include <cstring>
#include <thread>

#include "format/base/clock.h"
#include "interposer/core/memory/unwinder.h"

namespace convtrace::engine {
namespace {

constexpr size_t kReportRingBytes = size_t{4} << 20;
constexpr int kTries = 20;  ///< takes some microseconds
constexpr size_t kMaxStacks = size_t{1} << 16;
constexpr auto kFramework = format::MemorySource::kFramework;

/// c10::DeviceType: CPU 0, CUDA 1; the index is -1 for the CPU.
format::Device device_from(uint64_t device) {
  const auto type = static_cast<uint8_t>(device);
  const auto index = static_cast<int8_t>(device >> 8);
  using Type = format::Device::Type;
  return {type == 0 ? Type::kCpu : (type == 1 ? Type::kCuda : Type::kOther),
          static_cast<uint8_t>(index > 0 ? index : 0)};
}

MemoryReport read_report(const ByteRing::Record& record) {
  MemoryReport report;
  std::memcpy(&report, record.payload, sizeof report);
  return report;
}

cupti::MemoryRange range_of(const CpuBlock& block) {
  return {.base = block.base,
          .bytes = block.bytes,
          .generation = block.generation,
          .source = kFramework,
          .device = {format::Device::Type::kCpu, 0}};
}

}  // namespace

bool MemoryJournal::report(const void* pointer, int64_t bytes, uint64_t device) noexcept {
  if (pointer == nullptr || bytes == 0 || ended_for(device_from(device).type)) return false;
  ThreadContext* const context = this_thread();
  if (context == nullptr ||
      (!context->reports.mapped() && !context->reports.map(kReportRingBytes))) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  RawStack stack;
  if ((bytes > 0 && stacks_.load(std::memory_order_relaxed)) ||
      all_stacks_.load(std::memory_order_relaxed)) {
    capture_stack(stack);
  }
  MemoryReport report{.t_ns = now_ns(),
                      .address = reinterpret_cast<uint64_t>(pointer),
                      .bytes = bytes,
                      .thread = context->thread,
                      .device = device_from(device),
                      .frame_count = stack.count};
  const size_t stack_bytes = stack.count * sizeof(void*);
  std::byte* const out = context->reports.reserve(sizeof report + stack_bytes, 0);
  if (out == nullptr) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  report.ticket = next_ticket_.fetch_add(1, std::memory_order_acq_rel);
  std::memcpy(out, &report, sizeof report);
  std::memcpy(out + sizeof report, stack.frames, stack_bytes);
  context->reports.commit();
  std::atomic<bool>& seen = seen_[static_cast<size_t>(report.device.type)];
  if (!seen.load(std::memory_order_relaxed)) seen.store(true, std::memory_order_relaxed);
  return context->reports.used() > kReportRingBytes / 2;
}

bool MemoryJournal::all_applied() const noexcept {
  return applied_.load(std::memory_order_acquire) + 1 ==
             next_ticket_.load(std::memory_order_acquire) &&
         !cpu_blocks_wanted_.load(std::memory_order_acquire);
}

void MemoryJournal::apply_reports() {
  if (all_applied()) return;
  const Lock lock(mutex_);
  apply_locked();
}

bool MemoryJournal::apply_reports_if_free() {
  for (int i = 0; i < kTries; ++i) {
    if (all_applied()) return true;
    if (mutex_.try_lock()) {
      const Lock lock(mutex_, std::adopt_lock);
      apply_locked();
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

void MemoryJournal::apply_locked() {
  if (const uint64_t lost = lost_.exchange(0, std::memory_order_relaxed); lost != 0)
    listener_.on_reports_lost(lost);
  if (cpu_blocks_wanted_.load(std::memory_order_acquire)) show_all_cpu_blocks();
  // Tickets up to now. A report that has a ticket but is not in its ring yet cannot have caused
  // anything that is known here, so it may be applied next time.
  const uint64_t last = next_ticket_.load(std::memory_order_acquire) - 1;
  const uint64_t judged = merge_.run(
      &ThreadContext::reports, last,
      [](const ByteRing::Record& record) { return read_report(record).ticket; },
      [this](const ByteRing::Record& record) {
        mutex_.is_held();
        const MemoryReport report = read_report(record);
        const auto* frames = reinterpret_cast<void* const*>(record.payload + sizeof report);
        judge(report, {frames, report.frame_count});
        return true;
      });
  applied_.fetch_add(judged, std::memory_order_release);
  if (!cpu_stopped_.load()) return;
  if (shows_cpu_blocks_) {
    for (const auto& [base, block] : cpu_blocks_) (void)addresses_.release(base, kFramework);
  }
  cpu_blocks_.clear();
}

CpuBlock MemoryJournal::cpu_block(uint64_t address) {
  const Lock lock(mutex_);
  if (!all_applied()) apply_locked();
  return cpu_blocks_.at(address);
}

void MemoryJournal::show_all_cpu_blocks() {
  cpu_blocks_wanted_.store(false, std::memory_order_relaxed);
  shows_cpu_blocks_ = true;
  for (const auto& [base, block] : cpu_blocks_) addresses_.restore(range_of(block));
}

void MemoryJournal::judge(const MemoryReport& report, std::span<void* const> stack) {
  if (ended_for(report.device.type)) return;
  if (report.bytes < 0) {
    const auto range = end(report);
    if (!range) return;  // allocated before tracing began
    if (!stack_of_generation_.empty()) stack_of_generation_.erase(range->generation);
    listener_.on_freed(report, *range, stack);
    return;
  }
  const cupti::MemoryRange range = begin(report);
  if (!stack.empty() && stack_of_generation_.size() < kMaxStacks)
    stack_of_generation_.emplace(range.generation, std::vector<void*>(stack.begin(), stack.end()));
  listener_.on_allocated(report, range, stack);
}

cupti::MemoryRange MemoryJournal::begin(const MemoryReport& report) {
  const auto bytes = static_cast<uint64_t>(report.bytes);
  if (report.device.type != format::Device::Type::kCpu)
    return addresses_.allocate({.base = report.address,
                                .bytes = bytes,
                                .source = kFramework,
                                .device = device_of(report)});
  const CpuBlock block{report.address, bytes, addresses_.new_generation()};
  cpu_blocks_.begin(block);
  const cupti::MemoryRange range = range_of(block);
  if (shows_cpu_blocks_) addresses_.restore(range);
  return range;
}

std::optional<cupti::MemoryRange> MemoryJournal::end(const MemoryReport& report) {
  const bool cpu = report.device.type == format::Device::Type::kCpu;
  std::optional<cupti::MemoryRange> ended;
  if (!cpu || shows_cpu_blocks_) ended = addresses_.release(report.address, kFramework);
  if (!cpu) return ended;
  const CpuBlock block = cpu_blocks_.end(report.address);
  return block.generation != 0 ? std::optional(range_of(block)) : std::nullopt;
}

format::Device MemoryJournal::device_of(const MemoryReport& report) const {
  constexpr auto kCuda = format::Device::Type::kCuda;
  if (report.device.type != kCuda) return report.device;
  const auto segment = addresses_.find(report.address);
  return segment && !segment->freed && segment->device.type == kCuda ? segment->device
                                                                     : report.device;
}

std::vector<void*> MemoryJournal::allocation_stack(uint64_t generation) const {
  const Lock lock(mutex_);
  const auto found = stack_of_generation_.find(generation);
  return found == stack_of_generation_.end() ? std::vector<void*>{} : found->second;
}

}  // namespace convtrace::engine
