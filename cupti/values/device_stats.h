#pragma once
/// @file device_stats.h
/// Statistics computed where the tensor lives: kernels launched on the producer's stream, results
/// picked out of a ring in host memory that the device writes and the host polls.
///
/// Threads:  submit from any thread, collect from any, one after the other. Contexts are prepared
///           on a helper thread, never in a callback.
/// Errors:   anything that cannot be done is a SampleOutcome; after a CUDA error of our own in a
///           context, all is kGpuWorkOff there, and one line says why.
/// Source:   docs/gpu-double.md "The rules".

#include <cuda.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cupti/driver/api.h"
#include "cupti/values/context_stats.h"
#include "format/base/mutex.h"
#include "format/model/event_sink.h"

namespace convtrace::cupti {

class DeviceStats {
 public:
  /// @param api, @param sink, @param values outlive this.
  /// @param most_samples  that any request asks for.
  /// @param values        null: nothing is stored whole. @param value_bytes as InterceptorOptions.
  /// Makes no CUDA call.
  DeviceStats(const DriverApi& api, format::EventSink& sink, uint32_t most_samples,
              ValueSink* values = nullptr, uint64_t value_bytes = 0);
  ~DeviceStats();
  DeviceStats(const DeviceStats&) = delete;
  DeviceStats& operator=(const DeviceStats&) = delete;

  /// Queues preparation of a context (kernel, ring, arenas) on the helper thread; returns at once.
  /// Idempotent.
  void prepare(CUcontext context) noexcept;
  /// Whether forget() will be called in front of each context's end; at first it will not.
  void follow_context_ends(bool told) noexcept;
  /// The context is going away: forget its handles, make no call on it. What the device has not
  /// finished is lost, and counted.
  void forget(CUcontext context) noexcept;
  /// The contexts that this thread forgot are gone, and no device writes their memory any more: it
  /// is freed as soon as no thread is in it.
  void forgotten_ended() noexcept;

  /// Launches statistics for `batch` on `stream` of `context`, the current one, behind what the
  /// stream holds now. The caller has checked that the stream may be used (not capturing, produced
  /// the memory).
  /// @param patience_ns  not 0: prepares the context first, and waits at most so long until that is
  /// over; once for each context, so a driver that is busy for longer costs the program no more.
  /// @return kSampled, or why nothing comes out for the batch.
  format::SampleOutcome submit(CUcontext context, std::span<const DeviceRequest> batch,
                               CUstream stream, uint64_t patience_ns = 0) noexcept;

  /// @return null for a context that is not prepared, or is gone.
  [[nodiscard]] std::shared_ptr<ContextStats> find(CUcontext context) const;

  /// Emits finished results to the sink. @return how many are still under way, and values.
  /// @param[in,out] room at most so many; less by what was emitted. 0 behind: there may be more.
  uint64_t collect(uint64_t& room) noexcept;

  /// @return how many values are under way from devices.
  [[nodiscard]] uint64_t values_under_way() const;

  /// Behind the last collect(): nothing of the driver's is read any more.
  void let_go_of_borrowed() noexcept;

  /// Ends the helper thread: waits for the driver call that it is in, at most `timeout_ns`.
  void stop(uint64_t timeout_ns) noexcept;

 private:
  using Shared = std::shared_ptr<ContextStats>;

  [[nodiscard]] Shared prepared(CUcontext context) noexcept;
  void await(ContextStats& context, uint64_t timeout_ns) noexcept;
  static void* main(void* self) noexcept;
  void serve();
  /// @param lock  of helper_mutex_, given back meanwhile: it has another name in the analysis.
  void prepare_next(Lock<Mutex>& lock) CONVTRACE_REQUIRES(helper_mutex_) CONVTRACE_NOT_ANALYZED;
  void pump_values(Lock<Mutex>& lock) CONVTRACE_REQUIRES(helper_mutex_) CONVTRACE_NOT_ANALYZED;
  bool pump_all() noexcept;
  [[nodiscard]] std::vector<Shared> all() const;
  void report(const ContextStats::Failure& failure, const char* effect) noexcept;

  const DriverApi& driver_;
  format::EventSink& sink_;
  const uint32_t most_samples_;
  ValueSink* const values_;
  const uint64_t value_bytes_;
  std::atomic<bool> ends_are_told_{false};

  mutable SharedMutex contexts_mutex_;
  std::map<CUcontext, Shared> contexts_ CONVTRACE_GUARDED_BY(contexts_mutex_);
  /// Their rings stay mapped: a device may write until a context's end is over. Whose end is not
  /// seen stays for good.
  struct Forgotten {
    Shared context;
    pthread_t by;
  };
  std::vector<Forgotten> forgotten_ CONVTRACE_GUARDED_BY(contexts_mutex_);

  Mutex helper_mutex_;
  std::condition_variable_any helper_wakes_, context_settles_;
  std::deque<Shared> to_prepare_ CONVTRACE_GUARDED_BY(helper_mutex_);
  pthread_t helper_{};
  bool helper_started_ CONVTRACE_GUARDED_BY(helper_mutex_) = false;
  bool helper_idle_ CONVTRACE_GUARDED_BY(helper_mutex_) = true;
  bool pump_wanted_ CONVTRACE_GUARDED_BY(helper_mutex_) = false;
  std::atomic<bool> stopping_{false};
};

}  // namespace convtrace::cupti
