#include "cupti/values/device_stats.h"

#include <algorithm>
#include <chrono>

#include "cupti/driver/cuda_error.h"
#include "cupti/driver/mutation.h"
#include "cupti/driver/own_calls.h"
#include "cupti/driver/report.h"
#include "cupti/stats/kernels/fatbin.h"
#include "format/base/background_thread.h"

namespace convtrace::cupti {
namespace {

using format::SampleOutcome;

constexpr const char* kNoMoreValues = "from now on values in this context are not recorded";

void count_lost(uint64_t count, format::EventSink& sink) {
  if (count == 0) return;
  format::Loss loss;
  loss.header.step = format::kNoStep;
  loss.reason = format::LossReason::kContextEnded;
  loss.count = count;
  sink.emit(loss);
}

}  // namespace

DeviceStats::DeviceStats(const DriverApi& api, format::EventSink& sink, uint32_t most_samples,
                         ValueSink* values, uint64_t value_bytes)
    : driver_(api),
      sink_(sink),
      most_samples_(most_samples),
      values_(values),
      value_bytes_(value_bytes) {}

/// Code for x.y runs on x.z from y on, and PTX on all that is newer. Source: CUDA C++ Programming
/// Guide, "Binary Compatibility".
bool DeviceStats::compiles_for(int major, int minor) noexcept {
  const auto runs = [=](int cubin) { return cubin / 10 == major && cubin % 10 <= minor; };
  return 10 * major + minor > stats::kCubins[0] && std::ranges::none_of(stats::kCubins, runs);
}

DeviceStats::~DeviceStats() {
  stop(0);
  if (helper_started_) pthread_join(helper_, nullptr);
}

void DeviceStats::prepare(CUcontext context) noexcept { (void)prepared(context); }

/// @return the context; its preparation may have been queued by this call.
DeviceStats::Shared DeviceStats::prepared(CUcontext context) noexcept try {
  if (Shared known = find(context)) return known;
  const auto made = std::make_shared<ContextStats>(driver_, context, sink_, most_samples_, values_,
                                                   value_bytes_, ends_are_told_);
  const Lock contexts_lock(contexts_mutex_);
  const Lock lock(helper_mutex_);
  to_prepare_.push_back(made);
  const auto [known, is_new] = contexts_.emplace(context, made);
  if (!is_new) {
    to_prepare_.pop_back();
    return known->second;
  }
  if (!helper_started_)
    helper_started_ = start_background_thread(helper_, &DeviceStats::main, this);
  if (!helper_started_) made->give_up();
  helper_wakes_.notify_one();
  return made;
} catch (...) {  // no memory: the context stays unknown
  return nullptr;
}

/// Under the lock of the queue, from which forget() takes a context that ends meanwhile.
void DeviceStats::prepare_again(const Shared& context) noexcept try {
  const Lock lock(helper_mutex_);
  if (!context->begin_again()) return;
  to_prepare_.push_back(context);
  helper_wakes_.notify_one();
} catch (...) {  // no memory
  context->give_up();
}

void* DeviceStats::main(void* self) noexcept {
  pthread_setname_np(pthread_self(), "convtrace-gpu");
  try {
    static_cast<DeviceStats*>(self)->serve();
  } catch (...) {  // no memory: new contexts are not prepared
  }
  return nullptr;
}

void DeviceStats::serve() {
  const OwnCalls own;
  // Another thread of the program may be capturing, during which allocation is an error.
  CUstreamCaptureMode mode =
      MUTATION(strict_helper) ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED;
  (void)driver_.thread_exchange_stream_capture_mode(&mode);
  Lock lock(helper_mutex_);
  while (!stopping_.load()) {
    if (!to_prepare_.empty()) {
      prepare_next(lock);
    } else if (pump_wanted_) {
      pump_values(lock);
    } else {
      helper_wakes_.wait(lock);
    }
  }
}

void DeviceStats::prepare_next(Lock<Mutex>& lock) {
  const Shared context = std::move(to_prepare_.front());
  to_prepare_.pop_front();
  helper_idle_ = false;
  lock.unlock();
  report(context->prepare(stopping_), "values in this context are not recorded");
  lock.lock();
  helper_idle_ = true;
  context_settles_.notify_all();
}

void DeviceStats::pump_values(Lock<Mutex>& lock) {
  constexpr std::chrono::microseconds kPause{50};  // enough for some of the pieces on their way
  helper_idle_ = false;
  lock.unlock();
  const bool moving = pump_all();
  lock.lock();
  helper_idle_ = true;
  context_settles_.notify_all();
  if (moving) {
    helper_wakes_.wait_for(lock, kPause);
  } else {  // the next collect() asks again; room on the host is made by its thread
    pump_wanted_ = false;
  }
}

uint64_t DeviceStats::values_under_way() const {
  uint64_t count = 0;
  for (const Shared& known : all()) count += known->values_under_way();
  return count;
}

bool DeviceStats::pump_all() noexcept {
  bool moving = false;
  for (const Shared& known : all()) moving = known->pump_values() || moving;
  return moving;
}

DeviceStats::Shared DeviceStats::find(CUcontext context) const {
  const SharedLock lock(contexts_mutex_);
  const auto it = contexts_.find(context);
  return it == contexts_.end() ? nullptr : it->second;
}

/// A copy, so that no caller holds the table's lock while it works on a context.
std::vector<DeviceStats::Shared> DeviceStats::all() const {
  const SharedLock lock(contexts_mutex_);
  std::vector<Shared> list;
  for (const auto& [context, known] : contexts_) list.push_back(known);
  return list;
}

void DeviceStats::await(ContextStats& context, uint64_t timeout_ns) noexcept {
  if (context.is_settled() || !context.may_wait()) return;
  Lock lock(helper_mutex_);
  context_settles_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                            [&] { return context.is_settled() || stopping_.load(); });
}

void DeviceStats::follow_context_ends(bool told) noexcept {
  ends_are_told_.store(told);
  if (!told) let_go_of_borrowed();
}

void DeviceStats::let_go_of_borrowed() noexcept {
  uint64_t lost = 0;
  for (const Shared& known : all()) lost += known->let_go_of_borrowed();
  count_lost(lost, sink_);
}

void DeviceStats::forget(CUcontext context) noexcept {
  if (MUTATION(ring_read_after_end)) return;
  Shared known;
  {
    const Lock lock(contexts_mutex_);
    const auto it = contexts_.find(context);
    if (it == contexts_.end()) return;
    known = std::move(it->second);
    contexts_.erase(it);
    if (!MUTATION(ring_freed_early)) forgotten_.push_back({known, pthread_self()});
  }
  // The helper may be inside a call on this context, which will end under it. It makes no further
  // call.
  known->give_up();
  constexpr uint64_t kPatienceNs = 500'000'000;
  {
    Lock lock(helper_mutex_);
    std::erase(to_prepare_, known);
    context_settles_.wait_for(lock, std::chrono::nanoseconds(kPatienceNs),
                              [&]() CONVTRACE_REQUIRES(helper_mutex_) { return helper_idle_; });
  }
  count_lost(known->forget(sink_), sink_);
}

/// Every other thread that uses one of them has a shared pointer to it (find(), all()).
void DeviceStats::forgotten_ended() noexcept {
  const Lock lock(contexts_mutex_);
  std::erase_if(forgotten_, [](const Forgotten& forgotten) {
    return pthread_equal(forgotten.by, pthread_self()) != 0;
  });
}

SampleOutcome DeviceStats::submit(CUcontext context, std::span<const DeviceRequest> batch,
                                  CUstream stream, uint64_t patience_ns, Results results) noexcept {
  const Shared known = patience_ns == 0 ? find(context) : prepared(context);
  if (known == nullptr) return SampleOutcome::kNotReady;
  if (known->is_refused()) prepare_again(known);
  if (patience_ns != 0) await(*known, patience_ns);
  ContextStats::Failure failure;
  const SampleOutcome outcome = known->submit(batch, stream, results, failure);
  report(failure, kNoMoreValues);
  return outcome;
}

bool DeviceStats::has_waiting(CUcontext context) const {
  const Shared known = find(context);
  return known != nullptr && known->has_waiting();
}

void DeviceStats::lose_waiting() noexcept {
  for (const Shared& known : all()) known->lose_waiting();
}

void DeviceStats::fold_waiting(CUcontext context) noexcept {
  ContextStats::Failure failure;
  if (const Shared known = find(context)) known->fold_waiting(failure);
  report(failure, kNoMoreValues);
}

uint64_t DeviceStats::collect(uint64_t& room) noexcept {
  uint64_t under_way = 0;
  for (const Shared& known : all()) under_way += known->collect(sink_, room);
  if (values_ == nullptr) return under_way;
  if (stopping_.load()) {
    pump_all();
    return under_way + values_under_way();
  }
  const Lock lock(helper_mutex_);
  pump_wanted_ = true;  // the helper checks whether there is something to do
  helper_wakes_.notify_one();
  return under_way;
}

void DeviceStats::stop(uint64_t timeout_ns) noexcept {
  Lock lock(helper_mutex_);
  stopping_.store(true);
  helper_wakes_.notify_all();
  context_settles_.notify_all();
  context_settles_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                            [this]() CONVTRACE_REQUIRES(helper_mutex_) { return helper_idle_; });
}

void DeviceStats::report(const ContextStats::Failure& failure, const char* effect) noexcept {
  // After a sticky error every call fails, and the gate reports it for the program's own call.
  if (failure.result == CUDA_SUCCESS || is_sticky(failure.result)) return;
  char text[192], times[32] = "";
  if (failure.times > 1) snprintf(times, sizeof times, " %u times", failure.times);
  snprintf(text, sizeof text, "%s for statistics returned %s%s; %s", failure.call,
           name_of(driver_, failure.result), times, effect);
  cupti::report(sink_, format::kNoStep, messages::kGpuWorkOff, text);
}

}  // namespace convtrace::cupti
