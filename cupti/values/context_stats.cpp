#include "cupti/values/context_stats.h"

#include <algorithm>

#include "cupti/driver/cuda_error.h"
#include "cupti/driver/mutation.h"
#include "cupti/driver/own_calls.h"
#include "cupti/stats/kernels/fatbin.h"

namespace convtrace::cupti {
namespace {

constexpr uint32_t kMostLaunches = 512;
constexpr size_t kAlignment = 256;
/// Sixteen values of any size, and one of any size.
constexpr uint32_t kPlacesOfDefault = 16 * stats::log_places(stats::kMaxTiles), kPlaces = 2560;
static_assert(kPlaces >= stats::log_places(stats::kMaxTiles));

constexpr size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_default(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

}  // namespace

ContextStats::Failure ContextStats::prepare(const std::atomic<bool>& stopping) noexcept {
  constexpr Failure (ContextStats::*kSteps[])() noexcept = {
      &ContextStats::load_kernels, &ContextStats::choose_variant, &ContextStats::register_ring,
      &ContextStats::make_lanes};
  const ContextScope current(driver_, context_);
  Failure failure{current.result(), "cuCtxPushCurrent"};
  for (const auto step : kSteps) {
    if (failure.result != CUDA_SUCCESS || stopping.load() || is_settled()) break;  // given up
    failure = (this->*step)();
  }
  const bool ready = failure.result == CUDA_SUCCESS && !stopping.load() && !is_settled();
  if (ready) values_.prepare(value_bytes_, gather_);
  // Without a kernel nothing else was taken that a second attempt would take again.
  const bool refused = is_transient(failure.result) && gather_ == nullptr;
  if (refused) failure.times = ++refusals_;
  const bool again = refused && refusals_ <= kMostRefusals;
  const Phase next = ready ? Phase::kReady : again ? Phase::kRefused : Phase::kOver;
  Phase expected = Phase::kPreparing;  // forget() may have run meanwhile
  phase_.compare_exchange_strong(expected, next);
  return again ? Failure() : failure;
}

ContextStats::Failure ContextStats::load_kernels() noexcept {
  CUmodule module = nullptr;
  CUresult result = driver_.module_load_data(&module, stats::convtrace_stats_fatbin);
  if (result != CUDA_SUCCESS) return {result, "cuModuleLoadData"};
  const auto load = [&](CUfunction* kernel, const char* name) {
    if (result == CUDA_SUCCESS) result = driver_.module_get_function(kernel, module, name);
  };
  load(&kernel_, stats::kStatsKernelName);
  load(&fold_, stats::kFoldKernelName);
  load(&list_, stats::kListKernelName);
  load(&gather_, stats::kGatherKernelName);
  return {result, "cuModuleGetFunction"};
}

/// GPUs for computing have half as many f64 units as f32 units, GPUs for graphics a 32nd or a 64th.
/// If the driver does not report the ratio, the reference variant is used.
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
  void* pinned = memory.data();
  CUresult result = driver_.mem_host_register(pinned, memory.size(), CU_MEMHOSTREGISTER_DEVICEMAP);
  // Sandboxes may refuse the registration. Memory of the driver goes away with its context, so it
  // is not used if the context's end is not reported.
  if (result != CUDA_SUCCESS && ends_are_told_.load() && driver_.mem_host_alloc != nullptr) {
    result = driver_.mem_host_alloc(&pinned, memory.size(), CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS) ring_.borrow(pinned);
  }
  CUdeviceptr address = 0;
  if (result == CUDA_SUCCESS) result = driver_.mem_host_get_device_pointer(&address, pinned, 0);
  ring_.set_device_address(address);
  return {result, "cuMemHostRegister"};
}

ContextStats::Failure ContextStats::make_lanes() noexcept {
  size_t bytes = ResultRing::kLanes * aligned(sizeof(stats::ManyBatch));
  for (stats::Log& log : logs_) {
    log.places = &log == &logs_[kDefault] ? kPlacesOfDefault : kPlaces;
    log.address = bytes;
    bytes += aligned(log.places * sizeof(stats::LogPlace));
  }
  CUresult result = driver_.mem_alloc(&lists_address_, bytes);
  if (result != CUDA_SUCCESS) return {result, "cuMemAlloc"};
  for (stats::Log& log : logs_) log.address += lists_address_;
  // Not the legacy stream, which would wait for the program's streams and break a capture.
  CUstream stream = nullptr;
  result = driver_.stream_create(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return {result, "cuStreamCreate"};
  result = warm_up(stream);
  const CUresult destroyed = driver_.stream_destroy(stream);
  return {result == CUDA_SUCCESS ? destroyed : result, "first use of the kernels"};
}

/// Launches each kernel once without work: the driver may load it at its first launch and allocate
/// local memory, for which it waits for the device.
CUresult ContextStats::warm_up(CUstream stream) noexcept {
  CUresult result = CUDA_SUCCESS;
  stats::ManyBatch nothing{};
  static_assert(sizeof nothing >= sizeof(stats::FewBatch) &&
                sizeof nothing >= sizeof(stats::Fold) && sizeof nothing >= sizeof(stats::CopyJob));
  void* params[] = {&nothing};
  const auto launch = [&](CUfunction kernel, unsigned threads) {
    if (result == CUDA_SUCCESS && !MUTATION(cold_kernels))
      result = driver_.launch_kernel(kernel, 1, 1, 1, threads, 1, 1, 0, stream, params, nullptr);
  };
  launch(kernel_, stats::kThreads);
  launch(fold_, stats::kFoldThreads);
  launch(list_, stats::kListThreads);
  launch(gather_, stats::kGatherThreads);
  return result == CUDA_SUCCESS ? driver_.stream_synchronize(stream) : result;
}

ContextStats::Lane* ContextStats::lane_for(CUstream stream, uint64_t stream_id) noexcept {
  if (MUTATION(one_arena_for_all)) return lanes_.begin();
  const auto free = [](const Lane& lane) { return !lane.busy || MUTATION(pending_folded); };
  if (is_default(stream) && free(lanes_[kDefault])) return &lanes_[kDefault];
  Lane* const others = lanes_.begin() + kDefault + 1;
  Lane* const owner = std::find_if(others, lanes_.end(), [&](const Lane& lane) {
    return lane.used && lane.stream_id == stream_id && free(lane);
  });
  if (owner != lanes_.end()) return owner;
  const auto idle =
      std::find_if(others, lanes_.end(), [this](const Lane& lane) CONVTRACE_REQUIRES(claim_mutex_) {
        return !lane.used || MUTATION(arena_taken_early) ||
               (!lane.busy && ring_.is_idle(static_cast<uint32_t>(&lane - lanes_.data())));
      });
  return idle == lanes_.end() ? nullptr : idle;
}

bool ContextStats::claim(std::span<const DeviceRequest> batch, CUstream stream, uint64_t stream_id,
                         Grant& grant) noexcept {
  const Lock lock(claim_mutex_);
  if (phase() != Phase::kReady) return false;
  Lane* const lane = lane_for(stream, stream_id);
  const bool full = ring_.launches_under_way() >= kMostLaunches && !MUTATION(no_launch_limit);
  if (lane == nullptr || full) return false;
  const auto number = static_cast<uint32_t>(lane - lanes_.data());
  if (!lane->used || lane->stream_id != stream_id) ring_.forget_reads(number);
  const auto claim = ring_.claim(batch, number);
  if (!claim) return false;
  *lane = {.stream_id = stream_id, .used = true, .busy = true};
  grant.first = claim->first;
  return true;
}

format::SampleOutcome ContextStats::submit(std::span<const DeviceRequest> batch, CUstream stream,
                                           Results results, Failure& failure) noexcept {
  if (batch.empty()) return format::SampleOutcome::kSampled;
  const Phase now = phase();
  if (now == Phase::kPreparing || now == Phase::kRefused) return format::SampleOutcome::kNotReady;
  if (now == Phase::kOver) return format::SampleOutcome::kGpuWorkOff;
  // A new stream may have the handle of an old one; ids are never reused.
  unsigned long long stream_id = 0;
  CUresult result = driver_.stream_get_id(stream, &stream_id);
  if (MUTATION(arena_by_handle)) stream_id = reinterpret_cast<uint64_t>(stream);
  if (MUTATION(wrong_stream)) stream = nullptr;
  Grant grant;
  if (result == CUDA_SUCCESS) {
    while (!claim(batch, stream, stream_id, grant))
      if (!MUTATION(waits_for_room)) return format::SampleOutcome::kRingFull;
    const uint32_t lane = grant.first.lane;
    stage_values(grant, batch.size(), stream);
    const bool stages = grant.launches > 0;  // room for values is scarce
    result = launch_all(grant, batch.size(), stream);
    const bool waits = results == Results::kLater && lane == kDefault && !stages &&
                       logs_[lane].count < kMostWaiting;
    if (result == CUDA_SUCCESS && !waits) result = fold(lane, stream, grant.launches);
    // Work that was launched may still write to this ring, so it is not used any more.
    for (size_t i = 0; result != CUDA_SUCCESS && i < batch.size(); ++i) ring_.drop(grant.first + i);
    if (result != CUDA_SUCCESS) end_work(result, failure);
    const Lock lock(claim_mutex_);
    ring_.launched(grant.first, batch.size(), grant.launches);
    release(lane);
  } else {
    end_work(result, failure);
  }
  return result == CUDA_SUCCESS ? format::SampleOutcome::kSampled
                                : format::SampleOutcome::kGpuWorkOff;
}

/// After an error of convtrace's own. What waits is lost when its lane is released.
void ContextStats::end_work(CUresult result, Failure& failure) noexcept {
  if (MUTATION(goes_on_after_error)) return;
  if (phase_.exchange(Phase::kOver) == Phase::kReady) failure = {result, "cuLaunchKernel"};
  const Lock lock(claim_mutex_);
  if (!lanes_[kDefault].busy) release(kDefault);
}

void ContextStats::release(uint32_t lane) noexcept {
  lanes_[lane].busy = false;
  if (lane != kDefault) return;
  stats::Log& log = logs_[kDefault];
  if (log.count > 0 && phase() == Phase::kOver) {
    ring_.lose(waiting_from_);
    log.clear();
  }
  waiting_.store(log.count);
}

void ContextStats::lose_waiting() noexcept {
  const Lock lock(claim_mutex_);
  if (lanes_[kDefault].busy || logs_[kDefault].count == 0) return;
  ring_.lose(waiting_from_);
  logs_[kDefault].clear();
  waiting_.store(0);
}

void ContextStats::fold_waiting(Failure& failure) noexcept {
  uint32_t launches = 0;
  {
    const Lock lock(claim_mutex_);
    Lane& lane = lanes_[kDefault];
    if (phase() != Phase::kReady || lane.busy || logs_[kDefault].count == 0) return;
    lane.busy = true;
    ring_.launches_more(kDefault, 1);
  }
  const CUresult result = fold(kDefault, nullptr, launches);
  if (result != CUDA_SUCCESS) end_work(result, failure);
  const Lock lock(claim_mutex_);
  release(kDefault);
}

/// Before the statistics, whose result then shows that the copies are done.
void ContextStats::stage_values(Grant& grant, size_t count, CUstream stream) noexcept {
  auto ticket = grant.first;
  for (size_t i = 0; i < count; ++i, ++ticket) {
    const stats::Layout* const layout = ring_.layout(ticket);
    if (layout == nullptr || ring_.capture(ticket) != format::Capture::kSnapshot) continue;
    if (const auto staged = values_.stage(*layout, stream)) {
      ring_.set_staged(ticket, *staged);
      ++grant.launches;
    } else if (values_.refuse()) {
      ring_.leave_statistics(ticket);
    } else {
      ring_.drop(ticket);
    }
  }
}

CUresult ContextStats::launch_all(Grant& grant, size_t count, CUstream stream) noexcept {
  if (MUTATION(log_reset_early)) logs_[grant.first.lane].taken = 0;
  return count <= stats::FewBatch::kMaxTensors ? launch_as<stats::FewBatch>(grant, count, stream)
                                               : launch_as<stats::ManyBatch>(grant, count, stream);
}

/// Behind the tiles of all that is in the lane's log, which is empty then.
CUresult ContextStats::fold(uint32_t lane, CUstream stream, uint32_t& launches) noexcept {
  stats::Log& log = logs_[lane];
  if (MUTATION(fold_on_other_stream)) stream = nullptr;
  for (uint32_t first = 0; first < log.count; first += stats::Fold::kMaxJobs) {
    stats::Fold fold = stats::fold_of(log, first, ring_.device_address());
    void* params[] = {&fold};  // copied by the driver
    ++launches;
    const CUresult result =
        driver_.launch_kernel(fold_, static_cast<uint32_t>(fold.count), 1, 1, stats::kFoldThreads,
                              1, 1, 0, stream, params, nullptr);
    if (result != CUDA_SUCCESS) return result;
  }
  log.clear();
  if (lane == kDefault) waiting_from_ = ring_.next(lane);
  return CUDA_SUCCESS;
}

template <typename BatchType>
CUresult ContextStats::launch_as(Grant& grant, size_t count, CUstream stream) noexcept {
  BatchType batch;
  const uint32_t lane = grant.first.lane;
  batch.head.list = lists_address_ + lane * aligned(sizeof(stats::ManyBatch));
  batch.head.variant = static_cast<uint32_t>(variant_);
  batch.head.slots = ring_.device_address();
  stats::BatchBuilder builder(batch, logs_[lane]);
  auto ticket = grant.first;
  for (size_t i = 0; i < count; ++i, ++ticket) {
    if (ring_.layout(ticket) == nullptr || ring_.add_to(builder, ticket)) continue;
    CUresult result = launch(builder, grant, stream);
    builder.clear();
    if (result == CUDA_SUCCESS && ring_.add_to(builder, ticket)) continue;
    if (result == CUDA_SUCCESS) result = fold(lane, stream, grant.launches);
    if (result != CUDA_SUCCESS) return result;
    if (lane == kDefault) waiting_from_ = ticket;
    builder.clear();
    (void)ring_.add_to(builder, ticket);  // fits: an empty batch and log take any tensor
  }
  return launch(builder, grant, stream);
}

CUresult ContextStats::launch(stats::BatchBuilder& builder, Grant& grant,
                              CUstream stream) noexcept {
  if (builder.blocks() == 0) return CUDA_SUCCESS;
  if (MUTATION(fold_before_tiles)) (void)fold(grant.first.lane, stream, grant.launches);
  void* params[] = {&builder.batch()};  // copied by the driver, with the tensors behind it
  const auto launch_one = [&](CUfunction kernel, unsigned blocks, unsigned threads) {
    ++grant.launches;
    return driver_.launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr);
  };
  if (builder.batch().tensor_count > stats::FewBatch::kMaxTensors) {
    const CUresult result = launch_one(list_, 1, stats::kListThreads);
    if (result != CUDA_SUCCESS) return result;
  }
  return launch_one(kernel_, builder.blocks(), stats::kThreads);
}

uint64_t ContextStats::collect(format::EventSink& sink, uint64_t& room) noexcept {
  const Lock lock(collect_mutex_);
  ring_.collect(sink, values_, room);
  return ring_.under_way();
}

uint64_t ContextStats::forget(format::EventSink& sink) noexcept {
  phase_.store(Phase::kOver);
  uint64_t room = ResultRing::kSlots;
  const uint64_t results = collect(sink, room);
  (void)let_go_of_borrowed();
  return results + values_.give_up();
}

uint64_t ContextStats::let_go_of_borrowed() noexcept {
  const Lock claiming(claim_mutex_);  // no function locks them in the other order
  const Lock collecting(collect_mutex_);
  if (!ring_.is_borrowed()) return 0;
  phase_.store(Phase::kOver);
  return ring_.close();
}

bool ContextStats::pump_values() noexcept {
  if (values_.under_way() == 0) return false;
  const ContextScope current(driver_, context_);
  return values_.pump();
}

}  // namespace convtrace::cupti
