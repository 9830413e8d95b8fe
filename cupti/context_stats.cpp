#include "cupti/context_stats.h"

#include <algorithm>

#include "cupti/context_scope.h"
#include "cupti/stats/kernels/fatbin.h"

namespace convtrace::cupti {
namespace {

constexpr size_t kPartialsBytes = stats::kMaxBatchTiles * sizeof(stats::Partial);
constexpr size_t kTicketsBytes = stats::kMaxBatchTensors * sizeof(uint32_t);
constexpr size_t kArenaBytes = (kPartialsBytes + kTicketsBytes + 255) / 256 * 256;

}  // namespace

ContextStats::Failure ContextStats::prepare(const std::atomic<bool>& stopping) noexcept {
  constexpr Failure (ContextStats::*kSteps[])() noexcept = {
      &ContextStats::load_kernels, &ContextStats::choose_variant, &ContextStats::register_ring,
      &ContextStats::make_arenas};
  const ContextScope current(driver_, context_);
  Failure failure{current.result(), "cuCtxPushCurrent"};
  for (const auto step : kSteps) {
    if (failure.result != CUDA_SUCCESS || stopping.load()) break;
    failure = (this->*step)();
  }
  const bool ready = failure.result == CUDA_SUCCESS && !stopping.load();
  if (ready) values_.prepare(value_bytes_, gather_);
  Phase expected = Phase::kPreparing;  // forget() may have been here
  phase_.compare_exchange_strong(expected, ready ? Phase::kReady : Phase::kOver);
  return failure;
}

ContextStats::Failure ContextStats::load_kernels() noexcept {
  CUmodule module = nullptr;
  CUresult result = driver_.module_load_data(&module, stats::convtrace_stats_fatbin);
  if (result != CUDA_SUCCESS) return {result, "cuModuleLoadData"};
  const auto load = [&](CUfunction* kernel, const char* name) {
    if (result == CUDA_SUCCESS) result = driver_.module_get_function(kernel, module, name);
    // Lazy loading would load it at the first launch, which may wait for the device.
    if (result == CUDA_SUCCESS && driver_.func_load != nullptr) result = driver_.func_load(*kernel);
  };
  load(&kernel_, stats::kStatsKernelName);
  load(&gather_, stats::kGatherKernelName);
  return {result, "cuModuleGetFunction"};
}

/// GPUs for computing have half as many f64 units as f32, those for graphics a 32nd or a 64th. A
/// driver that does not tell gets the reference.
ContextStats::Failure ContextStats::choose_variant() noexcept {
  constexpr int kSlow = 8;
  CUdevice device = 0;
  int ratio = 0;
  const bool known = driver_.ctx_get_device(&device) == CUDA_SUCCESS &&
                     driver_.device_get_attribute(
                         &ratio, CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
                         device) == CUDA_SUCCESS;
  if (known && ratio > kSlow) variant_ = stats::Variant::kNarrow;
  return {};
}

ContextStats::Failure ContextStats::register_ring() noexcept {
  const std::span<std::byte> memory = ring_.allocate(most_samples_, variant_);
  if (memory.empty()) return {CUDA_ERROR_OUT_OF_MEMORY, "mmap"};
  CUresult result =
      driver_.mem_host_register(memory.data(), memory.size(), CU_MEMHOSTREGISTER_DEVICEMAP);
  CUdeviceptr address = 0;
  if (result == CUDA_SUCCESS)
    result = driver_.mem_host_get_device_pointer(&address, memory.data(), 0);
  ring_.set_device_address(address);
  return {result, "cuMemHostRegister"};
}

/// The tickets at the end of each arena, and those of nodes, begin as zero; the kernel leaves them
/// so.
ContextStats::Failure ContextStats::make_arenas() noexcept {
  const size_t arenas = arenas_.size() * kArenaBytes;
  const size_t bytes = arenas + (in_graphs_ ? ScratchPool::kBytes : 0);
  CUresult result = driver_.mem_alloc(&arenas_address_, bytes);
  if (result != CUDA_SUCCESS) return {result, "cuMemAlloc"};
  if (in_graphs_) node_memory_.set_memory(arenas_address_ + arenas);
  return {zero(arenas_address_, bytes), "cuMemsetD8Async"};
}

CUresult ContextStats::zero(CUdeviceptr memory, size_t bytes) noexcept {
  // Not the legacy stream: it would wait for the program's, and break a capture.
  CUstream stream = nullptr;
  CUresult result = driver_.stream_create(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = driver_.memset_d8_async(memory, 0, bytes, stream);
  if (result == CUDA_SUCCESS) result = driver_.stream_synchronize(stream);
  const CUresult destroyed = driver_.stream_destroy(stream);
  return result == CUDA_SUCCESS ? destroyed : result;
}

ContextStats::Arena* ContextStats::arena_for(uint64_t stream_id) noexcept {
  const auto owner = std::ranges::find_if(
      arenas_, [=](const Arena& arena) { return arena.used && arena.stream_id == stream_id; });
  if (owner != arenas_.end()) return owner;
  const auto idle = std::ranges::find_if(arenas_, [this](const Arena& arena) {
    return !arena.used || ring_.is_done(arena.last_ticket);
  });
  return idle == arenas_.end() ? nullptr : idle;
}

bool ContextStats::claim(std::span<const DeviceRequest> batch, uint64_t stream_id,
                         Grant& grant) noexcept {
  const std::lock_guard lock(claim_mutex_);
  Arena* const arena = arena_for(stream_id);
  if (arena == nullptr) return false;
  const std::optional<uint64_t> first = ring_.claim(batch);
  if (!first) return false;
  *arena = {.stream_id = stream_id, .last_ticket = *first + batch.size() - 1, .used = true};
  grant = {*first, static_cast<uint32_t>(arena - arenas_.data())};
  return true;
}

format::NotSampled ContextStats::submit(std::span<const DeviceRequest> batch, CUstream stream,
                                        Failure& failure) noexcept {
  if (batch.empty()) return format::NotSampled::kSampled;
  const Phase now = phase();
  if (now == Phase::kPreparing) return format::NotSampled::kNotReady;
  if (now == Phase::kOver) return format::NotSampled::kGpuWorkOff;
  // A handle may be a new stream at an old one's address; ids are never used again.
  unsigned long long stream_id = 0;
  CUresult result = driver_.stream_get_id(stream, &stream_id);
  Grant grant;
  if (result == CUDA_SUCCESS) {
    if (!claim(batch, stream_id, grant)) return format::NotSampled::kRingFull;
    stage_values(grant, batch.size(), stream);
    result = launch_all(grant, batch.size(), stream);
    if (result == CUDA_SUCCESS) return format::NotSampled::kSampled;
    // What was launched may still be written: this ring is used no more.
    for (size_t i = 0; i < batch.size(); ++i) ring_.drop(grant.first_ticket + i);
  }
  if (phase_.exchange(Phase::kOver) == Phase::kReady) failure = {result, "cuLaunchKernel"};
  return format::NotSampled::kGpuWorkOff;
}

/// Before the statistics: their result then says that the copies are done.
void ContextStats::stage_values(const Grant& grant, size_t count, CUstream stream) noexcept {
  for (uint64_t ticket = grant.first_ticket; ticket < grant.first_ticket + count; ++ticket) {
    const stats::Layout* const layout = ring_.layout(ticket);
    if (layout == nullptr || ring_.capture(ticket) != format::Capture::kSnapshot) continue;
    if (const auto staged = values_.stage(*layout, stream)) {
      ring_.set_staged(ticket, *staged);
    } else if (values_.refuse()) {
      ring_.leave_statistics(ticket);
    } else {
      ring_.drop(ticket);
    }
  }
}

CUresult ContextStats::launch_all(const Grant& grant, size_t count, CUstream stream) noexcept {
  const uint64_t partials = arenas_address_ + grant.arena * kArenaBytes;
  stats::BatchBuilder builder(partials, partials + kPartialsBytes, variant_);
  for (uint64_t ticket = grant.first_ticket; ticket < grant.first_ticket + count; ++ticket) {
    if (ring_.layout(ticket) == nullptr || ring_.add_to(builder, ticket)) continue;
    const CUresult result = launch(builder, stream);
    if (result != CUDA_SUCCESS) return result;
    builder = stats::BatchBuilder(partials, partials + kPartialsBytes, variant_);
    (void)ring_.add_to(builder, ticket);  // an empty batch takes any tensor
  }
  return launch(builder, stream);
}

CUresult ContextStats::launch(const stats::BatchBuilder& builder, CUstream stream) noexcept {
  if (builder.blocks() == 0) return CUDA_SUCCESS;
  void* params[] = {const_cast<stats::Batch*>(&builder.batch())};  // the driver copies it
  return driver_.launch_kernel(kernel_, builder.blocks(), 1, 1, stats::kThreads, 1, 1, 0, stream,
                               params, nullptr);
}

uint64_t ContextStats::collect(format::EventSink& sink, uint64_t& room) noexcept {
  const std::lock_guard lock(collect_mutex_);
  ring_.collect(sink, values_, room);
  return ring_.under_way();
}

uint64_t ContextStats::forget(format::EventSink& sink) noexcept {
  phase_.store(Phase::kOver);
  uint64_t room = ResultRing::kSlots;
  const uint64_t results = collect(sink, room);
  return results + values_.give_up();
}

bool ContextStats::pump_values() noexcept {
  if (values_.under_way() == 0) return false;
  const ContextScope current(driver_, context_);
  return values_.pump();
}

}  // namespace convtrace::cupti
