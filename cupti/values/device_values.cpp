#include "cupti/values/device_values.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "cupti/driver/mutation.h"
#include "cupti/stats/batch.h"

namespace convtrace::cupti {

DeviceValues::~DeviceValues() {
  if (ring_ != nullptr) munmap(ring_, kRingBytes);
}

void DeviceValues::prepare(uint64_t arena_bytes, CUfunction gather) noexcept {
  if (sink_ == nullptr) return;
  gather_ = gather;
  if (!pump_mutex_.try_lock()) return;
  const Lock pumping(pump_mutex_, std::adopt_lock);
  if (!make_memory(arena_bytes)) return;
  Phase expected = Phase::kUnprepared;  // give_up() may have run meanwhile
  phase_.compare_exchange_strong(expected, Phase::kReady);
}

bool DeviceValues::make_memory(uint64_t arena_bytes) noexcept {
  if (driver_.mem_alloc(&arena_address_, arena_bytes) != CUDA_SUCCESS) return false;
  arena_.set_size(arena_bytes);
  void* const memory =
      mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  ring_ = static_cast<std::byte*>(memory);
  madvise(memory, kRingBytes, MADV_DONTFORK);  // a device writes to these pages
  // If the registration is refused (sandboxes), copies wait for the device, on the thread that
  // pumps.
  (void)driver_.mem_host_register(memory, kRingBytes, 0);
  const unsigned flags = MUTATION(blocking_own_stream) ? 0 : CU_STREAM_NON_BLOCKING;
  if (driver_.stream_create(&stream_, flags) != CUDA_SUCCESS) return false;
  return std::ranges::all_of(arrived_, [this](CUevent& event) {
    return driver_.event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  });
}

std::optional<DeviceValues::Staged> DeviceValues::stage(const stats::Layout& layout,
                                                        CUstream stream) noexcept {
  if (!is(Phase::kReady)) return std::nullopt;
  const std::optional<uint64_t> offset = arena_.claim(layout.bytes());
  if (!offset) return std::nullopt;
  const CUresult result = copy(layout, arena_address_ + *offset, stream);
  if (result == CUDA_SUCCESS) return Staged{*offset, layout.bytes()};
  phase_.store(Phase::kOver);
  return std::nullopt;
}

CUresult DeviceValues::copy(const stats::Layout& layout, CUdeviceptr to,
                            CUstream stream) const noexcept {
  if (layout.rank == 0) {
    return driver_.memcpy_dtod_async(to, reinterpret_cast<CUdeviceptr>(layout.data), layout.bytes(),
                                     stream);
  }
  constexpr uint64_t kMostBlocks = 4096;  // several times the resident blocks of any GPU
  constexpr uint64_t kBlockBytes = uint64_t{stats::kGatherThreads} * stats::kGroupBytes;
  stats::CopyJob job = stats::copy_job(layout, to);
  void* params[] = {&job};  // copied by the driver
  const uint64_t blocks = std::min(stats::ceil_div(layout.bytes(), kBlockBytes), kMostBlocks);
  return driver_.launch_kernel(gather_, static_cast<uint32_t>(blocks), 1, 1, stats::kGatherThreads,
                               1, 1, 0, stream, params, nullptr);
}

void DeviceValues::take(const format::TensorStats& event, const Staged& staged) noexcept try {
  if (sink_->has(event)) return arena_.release(staged.offset);
  Pending value{.event = event, .staged = staged, .incoming = nullptr};
  value.event.shape = {};  // borrowed, so not kept
  value.event.range_hashes = {};
  value.event.samples = {};
  std::list<Pending> made;
  made.push_back(std::move(value));
  {
    const Lock lock(handover_mutex_);
    if (!is(Phase::kOver)) {
      handed_over_.splice(handed_over_.end(), made);
      under_way_.fetch_add(1);
    }
  }
  if (made.empty()) return;
  (void)sink_->refuse();
  arena_.release(staged.offset);
} catch (...) {  // no memory
  (void)sink_->refuse();
  arena_.release(staged.offset);
}

/// @return false after an error of the driver.
bool DeviceValues::send_piece(Pending& value) noexcept {
  const uint64_t chunk = sent_ % kChunks;
  const uint64_t bytes = std::min<uint64_t>(kChunkBytes, value.staged.bytes - value.sent);
  const CUdeviceptr from = arena_address_ + value.staged.offset + value.sent;
  std::byte* const to = ring_ + chunk * kChunkBytes;
  CUresult result = driver_.memcpy_dtoh_async(to, from, bytes, stream_);
  // The context may have ended while this thread was in the call.
  if (result != CUDA_SUCCESS || !is(Phase::kReady)) return false;
  result = driver_.event_record(arrived_[chunk], stream_);
  if (result != CUDA_SUCCESS || !is(Phase::kReady)) return false;
  value.sent += bytes;
  ++sent_;
  return true;
}

/// @return false if the value has to wait for room.
bool DeviceValues::start(Pending& value) noexcept {
  value.over = sink_->has(value.event);  // perhaps stored since it was staged
  if (value.over) return true;
  ValueSink::Begun begun = sink_->begin(value.event);
  value.incoming = std::move(begun.value);
  if (value.incoming != nullptr || begun.later) return value.incoming != nullptr;
  (void)sink_->refuse();
  return value.over = true;
}

bool DeviceValues::send() noexcept {
  for (auto at = pending_.begin(); at != pending_.end();) {
    Pending& value = *at;
    if (value.incoming == nullptr && !start(value)) return true;  // it waits in the arena
    if (value.over) {
      arena_.release(value.staged.offset);
      at = pending_.erase(at);
      count_out();
      continue;
    }
    ++at;
    while (value.sent < value.staged.bytes) {
      if (sent_ - received_ == kChunks) return true;
      if (!send_piece(value)) return false;
    }
  }
  return true;
}

bool DeviceValues::receive() noexcept {
  while (received_ < sent_ && is(Phase::kReady)) {
    const uint64_t chunk = received_ % kChunks;
    const CUresult result = driver_.event_query(arrived_[chunk]);
    if (result == CUDA_ERROR_NOT_READY) return true;
    if (result != CUDA_SUCCESS) return false;
    Pending& value = pending_.front();
    const std::span<std::byte> to = value.incoming->next();
    if (to.empty()) return true;  // no host memory at present
    std::memcpy(to.data(), ring_ + chunk * kChunkBytes, to.size());
    value.incoming->filled();
    value.received += to.size();
    ++received_;
    if (value.received < value.staged.bytes) continue;
    arena_.release(value.staged.offset);
    pending_.pop_front();
    count_out();
  }
  return true;
}

/// Counts a value as done, unless give_up() has counted all of them.
void DeviceValues::count_out() noexcept {
  const Lock lock(handover_mutex_);
  if (under_way_.load() > 0) under_way_.fetch_sub(1);
}

bool DeviceValues::pump() noexcept {
  bool good = true;
  bool moving = false;
  if (pump_mutex_.try_lock()) {
    const Lock pumping(pump_mutex_, std::adopt_lock);
    {
      const Lock lock(handover_mutex_);
      pending_.splice(pending_.end(), handed_over_);
    }
    good = is(Phase::kReady) && receive() && is(Phase::kReady) && send();
    moving = sent_ > received_;
  }
  if (good && is(Phase::kReady)) return moving;
  if (const uint64_t lost = give_up(); lost > 0) {
    format::Loss loss;
    loss.header.step = format::kNoStep;
    loss.reason = format::LossReason::kGpuWorkOff;
    loss.count = lost;
    losses_.emit(loss);
  }
  return false;
}

uint64_t DeviceValues::give_up() noexcept {
  uint64_t lost = 0;
  {
    const Lock lock(handover_mutex_);
    phase_.store(Phase::kOver);
    lost = under_way_.exchange(0);
  }
  discard();
  return lost;
}

/// The last function that uses a value frees it: this one, or pump() after its call of the driver.
void DeviceValues::discard() noexcept {
  if (!pump_mutex_.try_lock()) return;
  const Lock pumping(pump_mutex_, std::adopt_lock);
  pending_.clear();
  sent_ = received_ = 0;
  const Lock lock(handover_mutex_);
  handed_over_.clear();
}

}  // namespace convtrace::cupti
